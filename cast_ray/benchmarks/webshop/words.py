"""Words that the reward treats in their own way."""

from __future__ import annotations

_COLOURS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown
burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee
cognac copper coral cranberry cream crystal dark denim eggplant elephant espresso fuchsia
gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender
lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red
rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower
tan taupe teal tiger turquoise violet walnut wheat white wine yellow
"""
_FUNCTION_WORDS = """
a an the and or but nor if as than so no not such it its this that these those there then
at by for from in into of off on onto out over per to under up upon via with without within
is are be was were been being can will has have do does
you your yours we our us they their them he his she her my i me all any each every both
"""

COLOURS = tuple(_COLOURS.split())
"""The original's, in the order in which they are looked for, which is alphabetical."""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words of titles that say nothing about the kind of a product."""
