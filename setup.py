"""Which folder installs as which package; everything else stands in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {
    "evflow": "evflow",
    "evflow.codgen": "codgen",
    "evflow.gpu": "gpu",
    "evflow.stones": "stones",
    "pyspark_evflow": "evflow/spark/pyspark_evflow",
}
# The links in evflow/ lead to folders that are listed here themselves.
LISTED_APART = ["codgen*", "gpu*", "stones*", "spark.pyspark_evflow"]

setup(
    package_dir=FOLDERS,
    packages=[
        *FOLDERS,
        *(
            f"{package}.{inner}"
            for package, folder in FOLDERS.items()
            for inner in find_packages(folder, exclude=LISTED_APART if package == "evflow" else [])
        ),
    ],
    package_data={"evflow": ["py.typed"], "evflow.gpu": ["kernels/*"]},
)
