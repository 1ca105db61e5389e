"""Options of Spark's readers and writers, to find misspelt ones: Spark itself ignores unknown options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.errors import did_you_mean
from watersmeet.pipelines.diagnostics import Mistake

_FILES = (
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "maxCachedFiles", "latestFirst", "fileNameOnly", "maxFileAge"),
    *("cleanSource", "sourceArchiveDir", "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter"),
    *("ignoreCorruptFiles", "ignoreMissingFiles", "basePath", "compression", "lineSep", "encoding", "mergeSchema"),
)
_TEXTS = (
    *("mode", "columnNameOfCorruptRecord", "dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale"),
    *("enableDateTimeParsingFallback", "multiLine", "samplingRatio", "charset", "inferTimestamp", "preferDate"),
)
#: Options by format. Spark ignores case.
KNOWN: dict[str, tuple[str, ...]] = {
    "csv": (
        *_FILES,
        *_TEXTS,
        *("sep", "delimiter", "quote", "quoteAll", "escape", "escapeQuotes", "comment", "header", "inferSchema"),
        *(
            "enforceSchema",
            "ignoreLeadingWhiteSpace",
            "ignoreTrailingWhiteSpace",
            "nullValue",
            "emptyValue",
            "nanValue",
        ),
        *("positiveInf", "negativeInf", "maxColumns", "maxCharsPerColumn", "charToEscapeQuoteEscaping"),
        *("unescapedQuoteHandling", "extension"),
    ),
    "json": (
        *_FILES,
        *_TEXTS,
        *("primitivesAsString", "prefersDecimal", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes"),
        *("allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars"),
        *("allowNonNumericNumbers", "dropFieldIfAllNull", "ignoreNullFields", "useUnsafeRow"),
    ),
    "parquet": (*_FILES, "datetimeRebaseMode", "int96RebaseMode"),
    "orc": _FILES,
    "text": (*_FILES, "wholetext"),
    "avro": (*_FILES, "avroSchema", "recordName", "recordNamespace", "datetimeRebaseMode", "positionalFieldMatching"),
    "kafka": (
        *("subscribe", "subscribePattern", "assign", "topic", "startingOffsets", "startingOffsetsByTimestamp"),
        *("startingTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp"),
        *("failOnDataLoss", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions"),
        *("maxRecordsPerPartition", "groupIdPrefix", "includeHeaders", "fetchOffset.numRetries"),
        *("fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"),
    ),
    "console": ("numRows", "truncate"),
}
#: Least similarity to a known name at which an unknown one counts as misspelt.
NEAR = 0.75


def check(given: dict[str, Any]) -> Iterator[Mistake]:
    """Options that are nearly known ones. Others may belong to a file system or to another data source."""
    for section in ("streams", "sinks"):
        for name, table in given[section].items():
            known = {option.lower(): option for option in KNOWN.get(table["format"], ())}
            for option in table.get("options", {}):
                if option.lower() in known or option.startswith("kafka."):
                    continue
                near = did_you_mean(option.lower(), known, lambda name: f"`{known[name]}`", NEAR)  # noqa: B023 (called at once)
                if near:
                    message = f"`{option}` is no option of {table['format']}; Spark would pass over it."
                    yield Mistake((section, name, "options", option), message, near)
