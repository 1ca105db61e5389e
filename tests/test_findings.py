"""The findings of a review of results and refusals, by number, and the tests that hold them.

1 to 12 were wrong or lost results, 13 to 23 refusals that came late or in the wrong words, 24 a documented way that
failed. A test is named by its file below `tests` and a part of its name; a test of messages also by the golden file.
"""

from __future__ import annotations

import re

import pytest

from lab import ROOT

FINDINGS: dict[int, tuple[str, list[str]]] = {
    1: (
        "punctuations apply to the columns that they name",
        [
            "spark/test_key_punctuations.py::a_punctuation_about_another_column_than_the_key_is_refused",
            "spark/test_key_punctuations.py::a_key_of_several_columns_is_closed_in_any_order",
            "spark/test_key_punctuations.py::in_a_tree_a_punctuation_about_another_operators_key_is_not_used",
            "spark/test_key_punctuations.py::a_stream_that_meets_itself_closes_the_column_that_it_names",
            "spark/test_key_punctuations.py::lists_of_keys_of_several_columns_are_refused",
            "tws/test_closed_values.py::these_may_become_another_value",
        ],
    ),
    2: (
        "a folder of results belongs to the query that wrote it",
        [
            "spark/test_write.py::a_folder_of_another_query_is_refused",
            "spark/test_write.py::a_folder_is_claimed_before",
            "tws/test_stream_names.py::one_folder_for_two_outputs_is_refused",
        ],
    ),
    3: (
        "streams without a name are called by their places",
        ["tws/test_stream_names.py::streams_are_called_by_their_places", "spark/test_write.py::the_same_lines_are"],
    ),
    4: ("trees measure windows without the session's zone", ["spark/test_time_zones.py::a_tree_measures_windows"]),
    5: (
        "heartbeats and rows have one kind of time",
        [
            "spark/test_time_zones.py::a_heartbeat_is_as_late_as_a_row",
            "spark/test_time_zones.py::instants_and_local_times_are_not_mixed",
        ],
    ),
    6: ("keys of the padded side are NULL", ["query/test_outer_keys.py::every_key_of_a_side_without_a_row_is_null"]),
    7: (
        "texts and arguments of aggregates are read as Spark reads them",
        ["query/test_literals.py::a_text_is_read_and_written_as_in_spark", "query/test_reader.py::every_mistake_has"],
    ),
    8: (
        "the selected columns decide nothing about rows",
        [
            "query/test_whole_streams.py::what_is_selected_does_not_decide",
            "query/test_whole_streams.py::no_row_of_a_stream_with_constraints_is_left_out",
            "spark/test_sql.py::which_row_of_a_unique_stream_is_a_violation",
        ],
    ),
    9: ("a late row hides nothing", ["joins/test_violations.py::a_late_row_hides_nothing"]),
    10: (
        "violations inside a batch are found",
        [
            "joins/test_violations.py::a_violation_inside_a_batch_is_found",
            "joins/test_violations.py::the_rules_by_their_definition",
        ],
    ),
    11: (
        "no column of a user collides with ours",
        ["tws/test_names.py::columns_may_be_called_as_ours", "spark/test_key_punctuations.py::columns_are_called_as"],
    ),
    12: ("joins on nested keys go on", ["spark/test_key_punctuations.py::finished_keys_of_a_join_close_them"]),
    13: (
        "checkpoint and query are compared before the start; errors of ours come out as ours",
        [
            "spark/test_write.py::a_changed_query_is_refused_before_it_starts",
            "spark/test_write.py::an_error_of_ours_comes_out",
            "tws/test_processor.py::another_number_of_shards_is_refused",
            "test_errors.py::an_error_of_ours_is_found_in_one_of_spark",
        ],
    ),
    14: ("two joins in one query", ["spark/test_write.py::two_joins_in_one_query_are_counted_each"]),
    15: (
        "wrong arguments get a sentence",
        [
            "spark/test_arguments.py::a_wrong_argument_is_refused_in_a_sentence",
            "spark/test_arguments.py::methods_of_dataframes_are_refused",
        ],
    ),
    16: (
        "conditions of punctuations are checked at once",
        ["spark/test_punctuation_errors.py::punctuations_are_read_before_they_are_used"],
    ),
    17: (
        "`watersmeet run --check` finds what is wrong",
        ["pipelines/test_files.py::what_the_files_contradict_is_found", "pipelines/test_reader.py::every_mistake_has"],
    ),
    18: (
        "SQL is refused at its place and in words of SQL",
        [
            "spark/test_sql_refusals.py::it_is_refused_at_once_where_it_stands",
            "query/test_outer_keys.py::a_column_in_using_is_that_of_whichever_side_is_there",
        ],
    ),
    19: (
        "a batch that is not read to its end is recognised",
        ["spark/test_write.py::sinks_may_stop_early", "test_errors.py::a_batch_that_was_not_read_to_its_end"],
    ),
    20: (
        "a busy machine gets another chance",
        ["demo/test_demo.py::on_a_busy_machine_the_query_is_started_again", "cli/test_run_command.py::a_busy_machine"],
    ),
    21: (
        "healthy runs are quiet",
        ["spark/test_quiet.py::a_healthy_run_is_quiet", "spark/test_quiet.py::a_worker_whose_socket_is_closed"],
    ),
    22: (
        "`explain` is short and has cautions",
        ["spark/test_explain.py::what_is_short_and_what_is_verbose", "tws/test_traps.py::a_window_of_0_says"],
    ),
    23: (
        "texts are short, shards are numbered from 0, delays measured by file",
        [
            "spark/test_explain.py::every_public_object_is_a_line",
            "tws/test_processor.py::shard_0_is_there",
            "tws/test_checkpoint_folder.py::what_a_folder_lacks",
            "demo/test_demo.py::rows_that_are_filtered_out_before_the_join_are_not_counted",
            "spark/test_measured_delay.py::several_files_in_one_batch",
        ],
    ),
    24: (
        "Kafka and Avro work as documented",
        [
            "kafka/test_end_to_end.py::the_commands_of_the_page_of_kafka_as_they_stand",
            "pipelines/test_packages.py::every_spark_has_a_connector_that_is_not_newer",
            "cli/test_command.py::the_doctor_fetches_the_connectors",
        ],
    ),
}


def test_every_finding_is_listed() -> None:
    assert sorted(FINDINGS) == list(range(1, 25))


@pytest.mark.parametrize("number", FINDINGS)
def test_a_finding_has_its_tests(number: int) -> None:
    for test in FINDINGS[number][1]:
        file, _, name = test.partition("::")
        assert re.search(rf"^def test_{name}", (ROOT / "tests" / file).read_text(), re.MULTILINE), test
