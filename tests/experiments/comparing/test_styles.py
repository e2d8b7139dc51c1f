"""Styles: policies look the same wherever they are drawn, and labels differ."""

from fedtempo.experiments.comparing.styles import COLOURS, on_dark, styles
from fedtempo.policies.registry import BUILT_IN


def own(*labels):
    """Return labels that stand for policies of the same names."""
    return styles({label: label for label in labels})


def test_styles_differ_and_known_policies_keep_theirs():
    many = own(*(f"K = {k}" for k in range(20)))
    assert len({(style.colour, style.dashes) for style in many.values()}) == 20
    assert own("uniform", "proposed")["proposed"] == own("proposed")["proposed"]
    mixed = own("mine", "proposed", "yours", "weighted")
    assert len({style.colour for style in mixed.values()}) == 4
    assert mixed["proposed"].colour == COLOURS[0]


def test_each_policy_has_a_colour_and_a_marker_of_its_own_whoever_stands_beside_it():
    together = own(*BUILT_IN)
    assert len({style.colour for style in together.values()}) == len({s.marker for s in together.values()}) == 21
    assert {name: own(name)[name] for name in BUILT_IN} == together
    beside = own(*BUILT_IN, *(f"mine {n}" for n in range(20)))
    assert len({(style.colour, style.dashes) for style in beside.values()}) == 41


def test_variants_of_a_policy_are_shades_of_its_colour():
    variants = styles({f"cohort_size {size}": "uniform" for size in range(20)} | {"weighted": "weighted"})
    assert variants["cohort_size 0"] == own("uniform")["uniform"]
    assert variants["weighted"] == own("weighted")["weighted"]
    assert len({(style.colour, style.dashes) for style in variants.values()}) == 21


def test_dark_colours_are_lightened_on_a_dark_page_and_others_are_kept():
    assert on_dark("#F0E442") == "#F0E442"
    for dark in ("#000000", "#332288"):
        parts = [int(on_dark(dark)[at : at + 2], 16) for at in (1, 3, 5)]
        assert min(parts) > 90, "so much white must be in it"
