"""Builds what a release publishes, twice, and lists what the wheel brings: `python -m tests.supply.release dist`.

Needs uv. The two builds must agree in every byte; the list is a CycloneDX SBOM of a clean environment with the wheel in it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SBOM = "ckaudit.cdx.json"
CYCLONEDX = "cyclonedx-bom==7.5.0"


def uv(*arguments: str | Path, **environment: str) -> str:
    """Run uv in the repository and return what it prints.

    Raises:
        SystemExit: With what uv says, where it fails.
    """
    command = [os.environ.get("UV", "uv"), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout.strip()


def build(folder: Path) -> list[Path]:
    """Write the sdist and the wheel made from it, with the time of the last commit in them, and return them."""
    committed = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    uv("build", "--quiet", "--out-dir", folder, SOURCE_DATE_EPOCH=committed.stdout.strip() or "1577836800")
    return sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])


def list_packages(wheel: Path, sbom: Path) -> None:
    """Write as a CycloneDX document what a clean environment holds once the wheel is installed."""
    with tempfile.TemporaryDirectory() as folder:
        uv("venv", "--quiet", folder)
        uv("pip", "install", "--quiet", "--python", folder, wheel)
        options = ["--pyproject", "pyproject.toml", "--mc-type", "application", "--output-reproducible", "--output-file", sbom]
        uv("tool", "run", "--quiet", "--from", CYCLONEDX, "cyclonedx-py", "environment", *options, folder)
    document = json.loads(sbom.read_text(encoding="utf-8"))
    document["metadata"]["component"]["version"] = version_of(wheel)  # which pyproject.toml leaves to the package
    sbom.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def version_of(wheel: Path) -> str:
    """Return the version that a wheel has in its name."""
    return wheel.name.split("-")[1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.supply.release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the files are written")
    parser.add_argument("--tag", default="", help="the tag of the release, which must be that of the wheel's version")
    options = parser.parse_args()
    files = build(options.folder.absolute())
    wheel = next(file for file in files if file.suffix == ".whl")
    if options.tag and version_of(wheel) != options.tag.removeprefix("v"):
        sys.exit(f"the tag is {options.tag}, the wheel {wheel.name}")
    with tempfile.TemporaryDirectory() as folder:
        unlike = [
            file.name for file, again in zip(files, build(Path(folder)), strict=True) if file.read_bytes() != again.read_bytes()
        ]
    if unlike:
        sys.exit(f"two builds differ: {', '.join(unlike)}")
    list_packages(wheel, options.folder.absolute() / SBOM)
    written = ", ".join(file.name for file in files)
    sys.stdout.write(f"wrote {written} and {SBOM} to {options.folder}; a second build is the same in every byte\n")


if __name__ == "__main__":
    main()
