"""What comes with the package: configurations by name, `setup2` wherever a command is given, and example scripts."""

from pathlib import Path

from fedtempo.checks import InputError, near_miss
from fedtempo.experiments.paper_numbers import CONFIGS

FOLDER = Path(__file__).parents[2] / "configs"
EXAMPLES = FOLDER.with_name("examples")


def shipped_names() -> list[str]:
    """Return the names of the configurations that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def example_scripts() -> dict[str, str]:
    """Return the scripts and notebooks that come with the package, by the names of their files."""
    found = sorted(path for ending in ("py", "ipynb") for path in EXAMPLES.glob(f"*.{ending}"))
    return {path.name: path.read_text(encoding="utf-8") for path in found}


def find_config(given: Path | str) -> Path:
    """Return the file of an experiment: the one that is named, or where there is none, the package's of that name."""
    path = Path(given)
    if path.exists() and not path.is_dir():
        return path
    if str(path) in shipped_names():
        return FOLDER / f"{path}.toml"
    if path.exists():
        return path  # a folder, which its reader refuses
    names, hint = shipped_names(), "fedtempo init writes one, and {} come with fedtempo"
    bare = str(path) == path.stem or path.stem in names
    remedy = near_miss(path.stem, names, otherwise=hint) if bare else hint.format(", ".join(names))
    raise InputError(name=given, rule="be a configuration file", got="no such file", remedy=remedy)


def find_setup(configs: Path, setup: str) -> Path:
    """Return the file of a setup of the paper in a folder; where nobody chose one, the package's will do."""
    path = configs / f"{setup}.toml"
    if path.exists():
        return path
    if configs == CONFIGS:
        return FOLDER / path.name
    raise InputError(
        name=path,
        rule="be a setup of the paper",
        got="no such file",
        remedy="leave {configs} out to take the one that comes with fedtempo",
    )
