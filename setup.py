"""Which folder installs as which package, and what is compiled before; the rest stands in pyproject.toml."""

import runpy
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

FOLDERS = {
    "evflow": "evflow",
    "evflow.codgen": "codgen",
    "evflow.gpu": "gpu",
    "evflow.stones": "stones",
    "pyspark_evflow": "evflow/spark/pyspark_evflow",
}
# The links in evflow/ lead to folders that are listed here themselves.
LISTED_APART = ["codgen*", "gpu*", "stones*", "spark.pyspark_evflow"]

MATCHING = Path(__file__).parent / "evflow/matching"
objects = runpy.run_path(str(MATCHING / "objects.py"))
# Asked for only where it has something to do, and where it can be had.
COMPILER = "numba>=0.62; python_version < '3.15' and platform_machine in 'x86_64 AMD64 aarch64 arm64'"


class Compiling(build_py):
    """Compiles the matcher's kernels first, into the package."""

    def run(self) -> None:
        if subprocess.run([sys.executable, MATCHING / "build.py"]).returncode:
            self.warn("the matcher's index will be compiled at first use, which needs numba")
        super().run()


class Wheel(bdist_wheel):
    """For one platform, because of the kernels, but for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        self.root_is_pure = False
        platform = super().get_tag()[2]
        # The files lie where those of pure packages do.
        self.root_is_pure = True
        return "py3", "none", platform


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
    package_data={
        "evflow": ["py.typed"],
        "evflow.gpu": ["kernels/*"],
        "evflow.matching": ["machine/*"],
        "evflow.tiles.map": ["page/*"],
    },
    setup_requires=[] if objects["fits"](MATCHING / "machine") else [COMPILER],
    cmdclass={"build_py": Compiling, "bdist_wheel": Wheel},
)
