"""LaTeX: the rules of booktabs, and no character that it would take for its own."""

from fedtempo.tables.latex import to_latex
from fedtempo.tables.table import Column, Table
from support.table_cases import TABLE


def test_a_table_has_rules_caption_and_notes():
    lines = to_latex(TABLE).splitlines()
    assert lines[2:5] == [r"\caption{Time to loss 1}", r"\begin{tabular}{lrrrrrr}", r"\toprule"]
    assert lines[7] == (
        r"statistical & 15,919 $\pm$ 885 & 12,802--14,735 & 1,318 & 2.62 $\times$ (0.56--12.19) & 2,087 & "
        r"18,006 $\pm$ 707 \\"
    )
    assert lines[-2] == r"\par\smallskip{\footnotesize See \texttt{a\_b}.}"


def test_special_characters_are_letters():
    table = Table.from_rows(["β/α", Column("100 %", align="left")], [["a_b & $c", r"\x{}~^#"], ["[t]", "-"]])
    assert r"$\beta$/$\alpha$ & 100 \% \\" in to_latex(table)
    assert r"a\_b \& \$c & \textbackslash{}x\{\}\textasciitilde{}\textasciicircum{}\# \\" in to_latex(table)
    assert r"{[}t{]} & - \\" in to_latex(table), "no length of the end of the row before"
    assert r"\caption" not in to_latex(table)
