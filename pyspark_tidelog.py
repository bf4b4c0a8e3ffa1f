"""Lets Spark find the format by itself: `spark.read.format("tidelog")` without registering.

Spark imports every top-level module whose name begins with `pyspark_` and takes its
`DefaultSource`. If one import fails, the session has none of these sources. So this module can be
imported without the packages of the extra, and the format names what is missing when it is used.

Source: Spark 4.3 `lookup_data_sources`.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

DefaultSource: type[DataSource]
_missing = ""


class UnusableSource(DataSource):
    """Stands for the format where a package of the extra is not installed."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tidelog"

    def schema(self) -> StructType:
        """Raises ModuleNotFoundError with the command that installs what is missing."""
        raise ModuleNotFoundError(
            f"format tidelog needs the Python package {_missing} in the environment that Spark "
            "starts for its workers (PYSPARK_PYTHON): pip install 'tidelog[spark]' there",
            name=_missing,
        )


try:
    from pipeline.spark.source import TidelogSource

    DefaultSource = TidelogSource
except ModuleNotFoundError as error:
    _missing = error.name or ""
    DefaultSource = UnusableSource
