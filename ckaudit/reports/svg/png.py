"""The first page of a report as PNG, for chats that cannot show SVG: rendered by resvg, from the extra `png`."""

from ckaudit.contract.schema.panels import Panels
from ckaudit.contract.schema.report import Report
from ckaudit.errors import CkauditError
from ckaudit.optional import install_command
from ckaudit.reports.svg.picture import render as as_svg

SIGNATURE = b"\x89PNG\r\n\x1a\n"  # PNG specification, third edition, section 5.2

ZOOM = 2  # screen pixels per pixel of the picture, so that small letters are sharp


def check_installed() -> None:
    """Raise `CkauditError` if the PNG renderer is not installed."""
    try:
        import resvg_py  # noqa: F401  whether it is there is the question
    except ModuleNotFoundError:
        hint = f"{install_command('png')}; --format svg needs nothing"
        raise CkauditError("a PNG is drawn by resvg, which is not installed", hint=hint) from None


def render(report: Report, panels: Panels) -> bytes:
    """Return the first page as PNG, in light colours.

    Raises:
        CkauditError: If resvg is not installed.
    """
    check_installed()
    from resvg_py import svg_to_bytes

    return bytes(svg_to_bytes(svg_string=as_svg(report, panels, light=True), zoom=ZOOM))
