"""A small map: 13 provinces, ten supply centres, three powers.

It is for quick games. The coast is a ring. Each power has two home centres there and a sea before them; a neutral
centre lies between any two powers, and an island, the fourth neutral centre, in the middle of the three seas. A turn by
a third maps the map onto itself, so that no power has an advantage.
"""

from flyball.app.games.diplomacy.maps import Map, parse_map

POWERS = {
    "AMBER": "A ADE, F ARN",
    "BASALT": "A BAY, F BRO",
    "CORAL": "A CAP, F COV",
}

PROVINCES = """
ADE Adel, home of AMBER: armies ARN FEN; fleets AMS ARN FEN
ARN Arnem, home of AMBER: armies ADE DUN; fleets ADE AMS DUN
DUN Dunes, centre: armies ARN BAY; fleets AMS ARN BAS BAY
BAY Bayham, home of BASALT: armies BRO DUN; fleets BAS BRO DUN
BRO Brook, home of BASALT: armies BAY ELM; fleets BAS BAY ELM
ELM Elmet, centre: armies BRO CAP; fleets BAS BRO CAP COS
CAP Cape, home of CORAL: armies COV ELM; fleets COS COV ELM
COV Cove, home of CORAL: armies CAP FEN; fleets CAP COS FEN
FEN Fens, centre: armies ADE COV; fleets ADE AMS COS COV
ISL Isle, centre: fleets AMS BAS COS; armies
AMS Amber Sea: fleets ADE ARN BAS COS DUN FEN ISL
BAS Basalt Sea: fleets AMS BAY BRO COS DUN ELM ISL
COS Coral Sea: fleets AMS BAS CAP COV ELM FEN ISL
"""

SMALL: Map = parse_map("small", PROVINCES, POWERS, to_win=6)
