"""A household of our own in ALFWorld's file format: a mug that belongs on a shelf."""

from __future__ import annotations

import json
from pathlib import Path

WALKTHROUGH = ("go to table 1", "take mug 1 from table 1", "go to shelf 1", "put mug 1 on shelf 1")
SPLIT = "json_2.1.1/valid_seen"

_DOMAIN = """
(define (domain household)
 (:requirements :adl :action-costs :typing)
 (:types agent place thing)
 (:predicates
   (beside ?a - agent ?p - place)
   (lies ?t - thing ?p - place)
   (holds ?a - agent ?t - thing)
   (busy ?a - agent)
   (seen ?a - agent)
   (stands ?p - place)
 )
 (:functions (total-cost) - number)
 (:action look :parameters (?a - agent) :precondition () :effect (and (seen ?a)))
 (:action walk
   :parameters (?a - agent ?from - place ?p - place)
   :precondition (and (beside ?a ?from) (not (beside ?a ?p)))
   :effect (and (not (beside ?a ?from)) (beside ?a ?p) (increase (total-cost) 1)))
 (:action grasp
   :parameters (?a - agent ?p - place ?t - thing)
   :precondition (and (beside ?a ?p) (lies ?t ?p) (not (busy ?a)))
   :effect (and (not (lies ?t ?p)) (holds ?a ?t) (busy ?a) (increase (total-cost) 1)))
 (:action drop
   :parameters (?a - agent ?p - place ?t - thing)
   :precondition (and (beside ?a ?p) (holds ?a ?t))
   :effect (and (lies ?t ?p) (not (holds ?a ?t)) (not (busy ?a)) (increase (total-cost) 1)))
)
"""

_GRAMMAR = '''
grammar :: """
    {
        "intro": [{"rhs": "#view#\\n\\nYour task is to: put the mug on the shelf."}],
        "view": [
            {
                "condition": "beside(a:agent, p:place) & lies(t:thing, p:place)",
                "rhs": "Here you see [{t.indefinite + ' ' + t.name | beside(a:agent, p:place) & lies(t:thing, p:place)}]."
            },
            {"rhs": "Here you see nothing."}
        ],
        "list_empty": [{"rhs": "nothing"}],
        "list_separator": [{"rhs": ", "}],
        "list_last_separator": [{"rhs": ", and "}]
    }
""";

action look { template :: "look"; feedback :: "#view#"; }
action walk { template :: "go to {p}"; feedback :: "You are at {p.name}. #view#"; }
action grasp { template :: "take {t} from {p}"; feedback :: "You take {t.name}."; }
action drop { template :: "put {t} on {p}"; feedback :: "You put {t.name} on {p.name}."; }
'''  # noqa: E501

_PROBLEM = """
(define (problem mug)
 (:domain household)
 (:objects
   you - agent
   table_bar_1 - place shelf_bar_1 - place door_bar_1 - place
   mug_bar_1 - thing mug_bar_2 - thing)
 (:init
   (= (total-cost) 0)
   (stands table_bar_1) (stands shelf_bar_1) (stands door_bar_1)
   (beside you door_bar_1)
   (lies mug_bar_1 table_bar_1)
   {more}
 )
 (:goal (exists (?t - thing) (lies ?t shelf_bar_1)))
 (:metric minimize (total-cost))
)
"""


def write_game(root: Path, name: str, **changes: object) -> str:
    """Write a game and return its board; ``changes`` replace members of its record."""
    record = {
        "pddl_domain": _DOMAIN,
        "grammar": _GRAMMAR,
        "pddl_problem": _PROBLEM.replace("{more}", f"(lies mug_bar_2 table_bar_1) ; {name}"),
        "solvable": True,
        "walkthrough": list(WALKTHROUGH),
    }
    board = f"{SPLIT}/{name}/trial_1/game.tw-pddl"
    path = root / board
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record | changes), encoding="utf-8")
    return board
