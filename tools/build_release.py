"""Build what PyPI takes, and check it: python tools/build_release.py ADDRESS [-o dist]

ADDRESS is that of the repository, such as https://github.com/OWNER/simple_spk. PyPI shows the
README without the files beside it, so in the packages its links and pictures lead to ADDRESS, at
the tag of this version. The commit that is checked out is built, in a copy. Needs the extra
[release].
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk import __version__

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"""(\]\(|\b(?:src|href)=")(?![a-z]+:|#)([^)"#\s]+)""")


def with_absolute_links(text: str, address: str, tag: str) -> str:
    """Markdown whose relative links and pictures lead to a tag of the repository at an address.

    >>> with_absolute_links('[a](docs/a.md#b) <img src="c.svg">', "https://x.org/y", "v1")
    '[a](https://x.org/y/blob/v1/docs/a.md#b) <img src="https://x.org/y/raw/v1/c.svg">'
    """

    def absolute(link: re.Match[str]) -> str:
        is_picture = link[2].endswith((".svg", ".png"))
        return f"{link[1]}{address}/{'raw' if is_picture else 'blob'}/{tag}/{link[2]}"

    return LINK.sub(absolute, text)


def links_of_project(address: str, tag: str) -> str:
    """The table of pyproject.toml that PyPI shows beside the README."""
    pages = {"Source": "", "Documentation": f"/blob/{tag}/docs/README.md"}
    pages |= {"Changelog": f"/blob/{tag}/CHANGELOG.md", "Issues": "/issues"}
    return "\n[project.urls]\n" + "".join(f'{k} = "{address}{v}"\n' for k, v in pages.items())


def main() -> None:
    """Build both packages and run the checks of twine and check-wheel-contents."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", metavar="ADDRESS", help="of the repository: https://...")
    parser.add_argument("-o", "--output", type=Path, default=Path("dist"), help="default: dist")
    options = parser.parse_args()
    address = options.address.rstrip("/")
    if not address.startswith("https://"):
        parser.error(f"ADDRESS must begin with https://, unlike {address}")
    output = options.output.resolve()
    if output.exists() and any(output.iterdir()):
        parser.error(f"{output} is not empty: remove it, or name another folder with -o")
    tag = f"v{__version__}"
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        archive = subprocess.run(
            ["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        ).stdout
        subprocess.run(["tar", "-x"], cwd=copy, input=archive, check=True)
        readme, project = copy / "README.md", copy / "pyproject.toml"
        readme.write_text(with_absolute_links(readme.read_text(), address, tag))
        project.write_text(project.read_text() + links_of_project(address, tag))
        run = [sys.executable, "-m"]
        subprocess.run([*run, "build", "--outdir", str(output), str(copy)], check=True)
    packages = sorted(map(str, output.iterdir()))
    subprocess.run([*run, "twine", "check", "--strict", *packages], check=True)
    wheels = [path for path in packages if path.endswith(".whl")]
    subprocess.run([*run, "check_wheel_contents", *wheels], check=True)
    print(f"upload: git tag {tag} && git push origin {tag} && twine upload {' '.join(packages)}")


if __name__ == "__main__":
    main()
