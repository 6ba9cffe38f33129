"""Adjudication cases of the Diplomacy Adjudicator Test Cases (DATC).

The cases have the numbers of DATC, which is by Lucas B. Kruijswijk, and are in our own words.

A case is a number and its subject, then a line of orders for each power, by its initial. The units are those that get
orders; a line ``+`` adds units that get no order, or whose order names them wrongly (``-`` before such an order keeps
it from adding a unit). A line ``>`` says which units go where, ``x`` is dislodged or gone; all others stay. ``--``
begins the retreats.
"""

BASIC = """
6.A.1 a move to a province that is not adjacent
E: F NTH - PIC

6.A.2 an army at sea
E: A LVP - IRI

6.A.3 a fleet on land
G: F KIE - MUN

6.A.4 a move to where the unit is
G: F KIE - KIE

6.A.5 a convoy to where the army is
E: F NTH C A YOR - YOR; A YOR - YOR; A LVP S A YOR - YOR
G: F LON - YOR; A WAL S F LON - YOR
> F LON YOR; A YOR x

6.A.6 an order to another power's unit
+ E: F LON
G: -F LON - NTH

6.A.7 a convoy of a fleet
E: F LON - BEL; F NTH C A LON - BEL

6.A.8 a support of the own hold
I: A VEN - TRI; A TYR S A VEN - TRI
A: F TRI S F TRI
> A VEN TRI; F TRI x

6.A.9 a fleet has to follow the coast
I: F ROM - VEN

6.A.10 a support of a move to where the helper cannot go
A: A VEN H
I: F ROM S A APU - VEN; A APU - VEN

6.A.11 two armies bounce
A: A VIE - TYR
I: A VEN - TYR

6.A.12 three armies bounce
A: A VIE - TYR
G: A MUN - TYR
I: A VEN - TYR

6.B.1 no coast is named, and two can be reached
F: F POR - SPA

6.B.2 no coast is named, and one can be reached
F: F GAS - SPA
> F GAS SPA/NC

6.B.3 a coast that cannot be reached
F: F GAS - SPA/SC

6.B.4 a support of a move to a coast that the helper cannot reach
F: F GAS - SPA/NC; F MAR S F GAS - SPA/NC
I: F WES - SPA/SC
> F GAS SPA/NC

6.B.5 a support from a coast that has no border there
F: F MAR - LYO; F SPA/NC S F MAR - LYO
I: F LYO H

6.B.6 an attack on the other coast cuts a support
E: F IRI S F NAO - MAO; F NAO - MAO
F: F SPA/NC S F MAO; F MAO H
I: F LYO - SPA/SC
> F NAO MAO; F MAO x

6.B.7 a support that names no coast
F: F POR S F MAO - SPA; F MAO - SPA/NC
I: F LYO S F WES - SPA/SC; F WES - SPA/SC

6.B.8 a support that names no coast, and one can be reached
F: F POR S F GAS - SPA; F GAS - SPA/NC
I: F LYO S F WES - SPA/SC; F WES - SPA/SC

6.B.9 a support that names the other coast
F: F POR S F MAO - SPA/NC; F MAO - SPA/SC
I: F LYO S F WES - SPA/SC; F WES - SPA/SC
> F WES SPA/SC

6.B.10 an order that names the unit's coast wrongly
+ F: F SPA/SC
F: -F SPA/NC - LYO
> F SPA/SC LYO

6.B.11 an order cannot change the unit's coast
+ F: F SPA/NC
F: -F SPA/SC - LYO

6.B.12 an army's move that names a coast
F: A GAS - SPA/NC
> A GAS SPA

6.B.13 no crawl around a province with two coasts
T: F BUL/SC - CON; F CON - BUL/EC

6.B.15 a support of a foreign fleet that names no coast
F: F POR S F MAO - SPA
E: F MAO - SPA/NC
I: F LYO S F WES - SPA/SC; F WES - SPA/SC

6.C.1 three units in a circle
T: F ANK - CON; A CON - SMY; A SMY - ANK
> F ANK CON; A CON SMY; A SMY ANK

6.C.2 three units in a circle with a support
T: F ANK - CON; A CON - SMY; A SMY - ANK; A BUL S F ANK - CON
> F ANK CON; A CON SMY; A SMY ANK

6.C.3 a fourth unit stops a circle
T: F ANK - CON; A CON - SMY; A SMY - ANK; A BUL - CON

6.C.4 a circle with an attacked convoy
A: A TRI - SER; A SER - BUL
T: A BUL - TRI; F AEG C A BUL - TRI; F ION C A BUL - TRI; F ADR C A BUL - TRI
I: F NAP - ION
> A TRI SER; A SER BUL; A BUL TRI

6.C.5 a circle with a disrupted convoy
A: A TRI - SER; A SER - BUL
T: A BUL - TRI; F AEG C A BUL - TRI; F ION C A BUL - TRI; F ADR C A BUL - TRI
I: F NAP - ION; F TUN S F NAP - ION
> F NAP ION; F ION x

6.C.6 two armies change places by two convoys
E: F NTH C A LON - BEL; A LON - BEL
F: F ENG C A BEL - LON; A BEL - LON
> A LON BEL; A BEL LON

6.C.7 a third army stops the change of places
E: F NTH C A LON - BEL; A LON - BEL
F: F ENG C A BEL - LON; A BEL - LON; A BUR - BEL
"""

SUPPORTS = """
6.D.1 a supported hold withstands
A: F ADR S A TRI - VEN; A TRI - VEN
I: A VEN H; A TYR S A VEN

6.D.2 an attack cuts the support of a hold
A: F ADR S A TRI - VEN; A TRI - VEN; A VIE - TYR
I: A VEN H; A TYR S A VEN
> A TRI VEN; A VEN x

6.D.3 an attack cuts the support of a move
A: F ADR S A TRI - VEN; A TRI - VEN
I: A VEN H; F ION - ADR

6.D.4 a unit that supports a hold is supported
G: A BER S F KIE; F KIE S A BER
R: F BAL S A PRU - BER; A PRU - BER

6.D.5 a unit that supports a move is supported
G: A BER S A MUN - SIL; F KIE S A BER; A MUN - SIL
R: F BAL S A PRU - BER; A PRU - BER
> A MUN SIL

6.D.6 a fleet that convoys is supported
G: A BER - SWE; F BAL C A BER - SWE; F PRU S F BAL
R: F LVN - BAL; F BOT S F LVN - BAL
> A BER SWE

6.D.7 a unit that moves cannot be supported in its province
G: F BAL - SWE; F PRU S F BAL
R: F LVN - BAL; F BOT S F LVN - BAL; A FIN - SWE
> F LVN BAL; F BAL x

6.D.8 an army without a convoy cannot be supported in its province
A: F ION H; A SER S A ALB - GRE; A ALB - GRE
T: A GRE - NAP; A BUL S A GRE
> A ALB GRE; A GRE x

6.D.9 a unit that holds cannot be supported in a move
I: A VEN - TRI; A TYR S A VEN - TRI
A: A ALB S A TRI - SER; A TRI H
> A VEN TRI; A TRI x

6.D.10 no power dislodges a unit of its own
G: A BER H; F KIE - BER; A MUN S F KIE - BER

6.D.11 no power dislodges a unit of its own that comes back
G: A BER - PRU; F KIE - BER; A MUN S F KIE - BER
R: A WAR - PRU

6.D.12 no power helps to dislodge a unit of its own
A: F TRI H; A VIE S A VEN - TRI
I: A VEN - TRI

6.D.13 no power helps to dislodge a unit of its own that comes back
A: F TRI - ADR; A VIE S A VEN - TRI
I: A VEN - TRI; F APU - ADR

6.D.14 an own support against a unit does not protect it
A: F TRI H; A VIE S A VEN - TRI
I: A VEN - TRI; A TYR S A VEN - TRI; F ADR S A VEN - TRI
> A VEN TRI; F TRI x

6.D.15 a defender cannot cut the support of the attack on itself
R: F CON S F BLA - ANK; F BLA - ANK
T: F ANK - CON
> F BLA ANK; F ANK x

6.D.16 a power convoys an army that dislodges its unit
E: A LON H; F NTH C A BEL - LON
F: F ENG S A BEL - LON; A BEL - LON
> A BEL LON; A LON x

6.D.17 a dislodged unit's support is cut
R: F CON S F BLA - ANK; F BLA - ANK
T: F ANK - CON; A SMY S F ANK - CON; A ARM - ANK
> F ANK CON; F CON x

6.D.18 a unit that survives goes on supporting
R: F CON S F BLA - ANK; F BLA - ANK; A BUL S F CON
T: F ANK - CON; A SMY S F ANK - CON; A ARM - ANK
> F BLA ANK; F ANK x

6.D.19 a unit that survives because of its own power's support goes on supporting
R: F CON S F BLA - ANK; F BLA - ANK; A SMY S F ANK - CON
T: F ANK - CON
> F BLA ANK; F ANK x

6.D.20 no power cuts a support of its own
E: F LON S F NTH - ENG; F NTH - ENG; A YOR - LON
F: F ENG H
> F NTH ENG; F ENG x

6.D.21 a dislodged unit has still cut a support
A: F TRI H
I: A VEN - TRI; A TYR S A VEN - TRI
G: A MUN - TYR
R: A SIL - MUN; A BER S A SIL - MUN
> A SIL MUN; A MUN x

6.D.22 a fleet's impossible move cannot be supported
G: F KIE - MUN; A BUR S F KIE - MUN
R: A MUN - KIE; A BER S A MUN - KIE
> A MUN KIE; F KIE x

6.D.23 a move from the wrong coast cannot be supported
I: F LYO - SPA/SC; F WES S F LYO - SPA/SC
F: F SPA/NC - LYO; F MAR S F SPA/NC - LYO
> F LYO SPA/SC; F SPA/NC x

6.D.24 an army's impossible move cannot be supported
F: A MAR - LYO; F SPA/SC S A MAR - LYO
I: F LYO H
T: F TYS S F WES - LYO; F WES - LYO
> F WES LYO; F LYO x

6.D.25 a unit whose support of a hold fails is supported
G: A BER S A PRU; F KIE S A BER
R: F BAL S A PRU - BER; A PRU - BER

6.D.26 a unit whose support of a move fails is supported
G: A BER S A PRU - SIL; F KIE S A BER
R: F BAL S A PRU - BER; A PRU - BER

6.D.27 a fleet whose convoy fails is supported
E: F SWE - BAL; F DEN S F SWE - BAL
G: A BER H
R: F BAL C A BER - LVN; F PRU S F BAL

6.D.28 a unit ordered to an impossible place holds, and is supported
A: A BUD S F RUM
R: F RUM - HOL
T: F BLA - RUM; A BUL S F BLA - RUM

6.D.29 a fleet ordered to an impossible coast holds, and is supported
A: A BUD S F RUM
R: F RUM - BUL/SC
T: F BLA - RUM; A BUL S F BLA - RUM

6.D.30 a fleet whose order lacks a coast holds, and is supported
I: F AEG S F CON
R: F CON - BUL
T: F BLA - CON; A BUL S F BLA - CON

6.D.31 a fleet cannot support the army that only it could convoy
A: A RUM - ARM
T: F BLA S A RUM - ARM

6.D.32 an army that no fleet could convoy holds, and is supported
E: F EDI S A LVP - YOR; A LVP - YOR
F: F LON S A YOR
G: A YOR - HOL

6.D.33 a support that is not wanted
A: A SER - BUD; A VIE - BUD
R: A GAL S A SER - BUD
T: A BUL - SER
> A SER BUD; A BUL SER

6.D.34 no support of a move to the helper's own province
G: A BER - PRU; A SIL S A BER - PRU; F BAL S A BER - PRU
I: A PRU S A LVN - PRU
R: A WAR S A LVN - PRU; A LVN - PRU
> A BER PRU; A PRU x

6.E.1 a dislodged unit has no effect where its attacker came from
G: A BER - PRU; F KIE - BER; A SIL S A BER - PRU
R: A PRU - BER
> A BER PRU; F KIE BER; A PRU x

6.E.2 no head-to-head battle dislodges an own unit
G: A BER - KIE; F KIE - BER; A MUN S A BER - KIE

6.E.3 no help against an own unit head to head
G: A BER - KIE; A MUN S F KIE - BER
E: F KIE - BER

6.E.4 the loser of a battle who stays still has an effect
G: F HOL - NTH; F HEL S F HOL - NTH; F SKA S F HOL - NTH
F: F NTH - HOL; F BEL S F NTH - HOL
E: F EDI S F NWG - NTH; F YOR S F NWG - NTH; F NWG - NTH
A: A KIE S A RUH - HOL; A RUH - HOL

6.E.5 the loser of a battle whom a third one dislodges still has an effect
G: F HOL - NTH; F HEL S F HOL - NTH; F SKA S F HOL - NTH
F: F NTH - HOL; F BEL S F NTH - HOL
E: F EDI S F NWG - NTH; F YOR S F NWG - NTH; F NWG - NTH; F LON S F NWG - NTH
A: A KIE S A RUH - HOL; A RUH - HOL
> F NWG NTH; F NTH x

6.E.6 a unit that only its own power's support keeps in place still has an effect
G: F HOL - NTH; F HEL S F HOL - NTH
F: F NTH - HOL; F BEL S F NTH - HOL; F ENG S F HOL - NTH
A: A KIE S A RUH - HOL; A RUH - HOL

6.E.7 a beleaguered garrison, and a support against an own unit
E: F NTH H; F YOR S F NWY - NTH
G: F HOL S F HEL - NTH; F HEL - NTH
R: F SKA S F NWY - NTH; F NWY - NTH

6.E.8 a beleaguered garrison in a head-to-head battle
E: F NTH - NWY; F YOR S F NWY - NTH
G: F HOL S F HEL - NTH; F HEL - NTH
R: F SKA S F NWY - NTH; F NWY - NTH

6.E.9 the garrison leaves, so the support counts
E: F NTH - NWG; F YOR S F NWY - NTH
G: F HOL S F HEL - NTH; F HEL - NTH
R: F SKA S F NWY - NTH; F NWY - NTH
> F NTH NWG; F NWY NTH

6.E.10 a garrison that would leave in a circle
E: F NTH - DEN; F YOR S F NWY - NTH
G: F HOL S F HEL - NTH; F HEL - NTH; F DEN - HEL
R: F SKA S F NWY - NTH; F NWY - NTH

6.E.11 a change of places by convoy, with two coasts
F: A SPA - POR VIA; F MAO C A SPA - POR; F LYO S F POR - SPA/NC
G: A GAS S F POR - SPA/NC
I: F POR - SPA/NC; F WES - SPA/SC
> A SPA POR; F POR SPA/NC

6.E.12 a support against an own unit keeps others out
A: A BUD - RUM; A SER S A VIE - BUD
I: A VIE - BUD
R: A GAL - BUD; A RUM S A GAL - BUD

6.E.13 a garrison beleaguered by three
E: F EDI S F YOR - NTH; F YOR - NTH
F: F BEL - NTH; F ENG S F BEL - NTH
G: F NTH H
R: F NWG - NTH; F NWY S F NWG - NTH

6.E.14 a unit that could not move there still defends
E: A LVP - EDI
R: F EDI - LVP

6.E.15 three battles over two provinces
E: F HOL S A RUH - KIE; A RUH - KIE
F: A KIE - BER; A MUN S A KIE - BER; A SIL S A KIE - BER
G: A BER - KIE; F DEN S A BER - KIE; F HEL S A BER - KIE
R: F BAL S A PRU - BER; A PRU - BER
"""

CONVOYS = """
6.F.1 no convoy by a fleet on a coast
T: A GRE - SEV; F AEG C A GRE - SEV; F CON C A GRE - SEV; F BLA C A GRE - SEV

6.F.2 a convoyed army bounces
E: F ENG C A LON - BRE; A LON - BRE
F: A PAR - BRE

6.F.3 a convoyed army is supported
E: F ENG C A LON - BRE; A LON - BRE; F MAO S A LON - BRE
F: A PAR - BRE
> A LON BRE

6.F.4 an attacked convoy holds
E: F NTH C A LON - HOL; A LON - HOL
G: F SKA - NTH
> A LON HOL

6.F.5 a beleaguered convoy holds
E: F NTH C A LON - HOL; A LON - HOL
F: F ENG - NTH; F BEL S F ENG - NTH
G: F SKA - NTH; F DEN S F SKA - NTH
> A LON HOL

6.F.6 a disrupted convoy cuts no support
E: F NTH C A LON - HOL; A LON - HOL
G: A HOL S A BEL; A BEL S A HOL; F HEL S F SKA - NTH; F SKA - NTH
F: A PIC - BEL; A BUR S A PIC - BEL
> F SKA NTH; F NTH x

6.F.7 a disrupted convoy contests no province
E: F NTH C A LON - HOL; A LON - HOL
G: F HEL S F SKA - NTH; F SKA - NTH
> F SKA NTH; F NTH x
--
E: F NTH R HOL
> F NTH HOL

6.F.8 a disrupted convoy makes nobody bounce
E: F NTH C A LON - HOL; A LON - HOL
G: F HEL S F SKA - NTH; F SKA - NTH; A BEL - HOL
> F SKA NTH; F NTH x; A BEL HOL

6.F.9 one of two routes is disrupted
E: F ENG C A LON - BEL; F NTH C A LON - BEL; A LON - BEL
F: F BRE S F MAO - ENG; F MAO - ENG
> F MAO ENG; F ENG x; A LON BEL

6.F.10 one of two routes is disrupted, a foreign one
E: F NTH C A LON - BEL; A LON - BEL
G: F ENG C A LON - BEL
F: F BRE S F MAO - ENG; F MAO - ENG
> F MAO ENG; F ENG x; A LON BEL

6.F.11 one of two foreign routes is disrupted
E: A LON - BEL
G: F ENG C A LON - BEL
R: F NTH C A LON - BEL
F: F BRE S F MAO - ENG; F MAO - ENG
> F MAO ENG; F ENG x; A LON BEL

6.F.12 a dislodged fleet that is not on the route
E: F ENG C A LON - BEL; A LON - BEL; F IRI C A LON - BEL
F: F NAO S F MAO - IRI; F MAO - IRI
> A LON BEL; F MAO IRI; F IRI x

6.F.13 another power's route stands in
E: A LON - BEL; F NTH C A LON - BEL
F: F ENG C A LON - BEL
G: F HOL S F DEN - NTH; F DEN - NTH
> A LON BEL; F DEN NTH; F NTH x

6.F.14 the simple paradox
E: F LON S F WAL - ENG; F WAL - ENG
F: A BRE - LON; F ENG C A BRE - LON
> F WAL ENG; F ENG x

6.F.15 the simple paradox with another convoy
E: F LON S F WAL - ENG; F WAL - ENG
F: A BRE - LON; F ENG C A BRE - LON
I: F IRI C A NAF - WAL; F MAO C A NAF - WAL; A NAF - WAL
> F WAL ENG; F ENG x; A NAF WAL

6.F.16 Pandin's paradox
E: F LON S F WAL - ENG; F WAL - ENG
F: A BRE - LON; F ENG C A BRE - LON
G: F NTH S F BEL - ENG; F BEL - ENG

6.F.17 Pandin's paradox, extended
E: F LON S F WAL - ENG; F WAL - ENG
F: A BRE - LON; F ENG C A BRE - LON; F YOR S A BRE - LON
G: F NTH S F BEL - ENG; F BEL - ENG

6.F.18 the betrayal paradox
E: F NTH C A LON - BEL; A LON - BEL; F ENG S A LON - BEL
F: F BEL S F NTH
G: F HEL S F SKA - NTH; F SKA - NTH

6.F.19 two routes, and a support against one of them
F: A TUN - NAP; F TYS C A TUN - NAP; F ION C A TUN - NAP
I: F NAP S F ROM - TYS; F ROM - TYS

6.F.20 two routes, one of which nobody wanted
F: A TUN - NAP; F TYS C A TUN - NAP
I: F NAP S F ION; F ION C A TUN - NAP
T: F AEG S F EAS - ION; F EAS - ION
> F EAS ION; F ION x

6.F.21 Dad's army
R: F EDI S A NWY - CLY; F NWG C A NWY - CLY; A NWY - CLY
F: F IRI S F MAO - NAO; F MAO - NAO
E: A LVP - CLY; F NAO C A LVP - CLY; F CLY S F NAO
> A NWY CLY; F CLY x; F MAO NAO; F NAO x

6.F.22 a paradox of two convoys with two solutions
E: F EDI - NTH; F LON S F EDI - NTH
F: A BRE - LON; F ENG C A BRE - LON
G: F BEL S F PIC - ENG; F PIC - ENG
R: A NWY - BEL; F NTH C A NWY - BEL
> F EDI NTH; F NTH x; F PIC ENG; F ENG x

6.F.23 a paradox of two convoys that exclude each other
E: F EDI - NTH; F YOR S F EDI - NTH
F: A BRE - LON; F ENG C A BRE - LON
G: F BEL S F ENG; F LON S F NTH
I: F MAO - ENG; F IRI S F MAO - ENG
R: A NWY - BEL; F NTH C A NWY - BEL

6.F.24 a paradox of two convoys without a solution
E: F EDI - NTH; F LON S F EDI - NTH; F IRI - ENG; F MAO S F IRI - ENG
F: A BRE - LON; F ENG C A BRE - LON; F BEL S F ENG
R: A NWY - BEL; F NTH C A NWY - BEL
> F EDI NTH; F NTH x

6.G.1 a convoy lets two neighbours change places
E: A NWY - SWE; F SKA C A NWY - SWE
R: A SWE - NWY
> A NWY SWE; A SWE NWY

6.G.2 a foreign convoy does not kidnap an army
E: A NWY - SWE
R: F SWE - NWY
G: F SKA C A NWY - SWE

6.G.3 a foreign convoy that is disrupted does not stop a walk
F: F BRE - ENG; A PIC - BEL; A BUR S A PIC - BEL; F MAO S F BRE - ENG
E: F ENG C A PIC - BEL
> F BRE ENG; F ENG x; A PIC BEL

6.G.4 a foreign convoy that is disrupted, and the opposite move
F: F BRE - ENG; A PIC - BEL; A BUR S A PIC - BEL; F MAO S F BRE - ENG
E: F ENG C A PIC - BEL; A BEL - PIC
> F BRE ENG; F ENG x; A PIC BEL; A BEL x

6.G.5 a change of places with one fleet of the army's power
I: A ROM - APU; F TYS C A APU - ROM
T: A APU - ROM; F ION C A APU - ROM
> A ROM APU; A APU ROM

6.G.6 a change of places by a route other than the intended one
E: A LVP - EDI; F ENG C A LVP - EDI
G: A EDI - LVP
F: F IRI H; F NTH H
R: F NWG C A LVP - EDI; F NAO C A LVP - EDI
> A LVP EDI; A EDI LVP

6.G.7 an impossible convoy is no intent
E: F SKA C A SWE - NWY; F NWY - SWE
R: A SWE - NWY; F BOT C A SWE - NWY

6.G.8 a convoy that is asked for, and is not there
F: A BEL - HOL VIA
E: F NTH - HEL; A HOL - KIE
> A BEL HOL; F NTH HEL; A HOL KIE

6.G.9 a change of places, and no dislodgement
E: A NWY - SWE; F SKA C A NWY - SWE; F FIN S A NWY - SWE
R: A SWE - NWY
> A NWY SWE; A SWE NWY

6.G.10 a convoyed army dislodges, and its opponent still bounces
E: A NWY - SWE VIA; F DEN S A NWY - SWE; F FIN S A NWY - SWE
G: F SKA C A NWY - SWE
R: A SWE - NWY; F BAR S A SWE - NWY
F: F NWG - NWY; F NTH S F NWG - NWY
> A NWY SWE; A SWE x

6.G.11 a paradox between neighbours
E: F NWY S F NTH - SKA; F NTH - SKA
R: A SWE - NWY; F SKA C A SWE - NWY; F BAR S A SWE - NWY
> F NTH SKA; F SKA x

6.G.12 a change of places by two convoys between neighbours
E: A LVP - EDI VIA; F NAO C A LVP - EDI; F NWG C A LVP - EDI
G: A EDI - LVP VIA; F NTH C A EDI - LVP; F ENG C A EDI - LVP; F IRI C A EDI - LVP
> A LVP EDI; A EDI LVP

6.G.13 a convoyed attack cannot cut the support of the attack on itself
A: F ADR C A TRI - VEN; A TRI - VEN VIA
I: A VEN S F ALB - TRI; F ALB - TRI
> F ALB TRI; A TRI x

6.G.14 a dislodged army bounces by convoy
E: A NWY - SWE; F DEN S A NWY - SWE; F FIN S A NWY - SWE
F: F NWG - NWY; F NTH S F NWG - NWY
G: F SKA C A SWE - NWY
R: A SWE - NWY VIA; F BAR S A SWE - NWY
> A NWY SWE; A SWE x

6.G.15 a bounce and a dislodgement with two convoys
E: F NTH C A LON - BEL; A HOL S A LON - BEL; A YOR - LON; A LON - BEL VIA
F: F ENG C A BEL - LON; A BEL - LON VIA
> A LON BEL; A BEL x

6.G.16 never two units in a province: by convoy
E: A NWY - SWE; A DEN S A NWY - SWE; F BAL S A NWY - SWE; F NTH - NWY
R: A SWE - NWY VIA; F SKA C A SWE - NWY; F NWG S A SWE - NWY
> A NWY SWE; A SWE NWY

6.G.17 never two units in a province: on foot
E: A NWY - SWE VIA; A DEN S A NWY - SWE; F BAL S A NWY - SWE; F SKA C A NWY - SWE; F NTH - NWY
R: A SWE - NWY; F NWG S A SWE - NWY
> A NWY SWE; A SWE NWY

6.G.18 never two units in a province: by two convoys
E: F NTH C A LON - BEL; A HOL S A LON - BEL; A YOR - LON; A LON - BEL VIA; A RUH S A LON - BEL
F: F ENG C A BEL - LON; A BEL - LON VIA; A WAL S A BEL - LON
> A LON BEL; A BEL LON
"""

RETREATS = """
6.H.1 no support of a retreat
A: F TRI H; A SER H
T: F GRE H
I: A VEN S A TYR - TRI; A TYR - TRI; F ION - GRE; F AEG S F ION - GRE
> A TYR TRI; F TRI x; F ION GRE; F GRE x
--
A: F TRI R ALB; A SER S F TRI - ALB
T: F GRE R ALB
> F TRI x; F GRE x

6.H.2 no support from a unit that retreats
E: A LVP - EDI; F YOR S A LVP - EDI; F NWY H
G: A KIE S A RUH - HOL; A RUH - HOL
R: F EDI H; A SWE S A FIN - NWY; A FIN - NWY; F HOL H
> A LVP EDI; F EDI x; A RUH HOL; F HOL x; A FIN NWY; F NWY x
--
E: F NWY R NTH
R: F EDI S F HOL - NTH; F HOL R NTH
> F NWY x; F EDI x; F HOL x

6.H.3 no convoy of a retreat
E: F NTH H; A HOL H
G: F KIE S A RUH - HOL; A RUH - HOL
> A RUH HOL; A HOL x
--
E: A HOL R YOR; F NTH C A HOL - YOR
> A HOL x

6.H.4 no moves of other units during retreats
E: F NTH H; A HOL H
G: F KIE S A RUH - HOL; A RUH - HOL
> A RUH HOL; A HOL x
--
E: A HOL R BEL; F NTH - NWG
> A HOL BEL

6.H.5 no retreat to where the attacker came from
R: F CON S F BLA - ANK; F BLA - ANK
T: F ANK H
> F BLA ANK; F ANK x
--
T: F ANK R BLA
> F ANK x

6.H.6 no retreat to a contested province
A: A BUD S A TRI - VIE; A TRI - VIE
G: A MUN - BOH; A SIL - BOH
I: A VIE H
> A TRI VIE; A VIE x
--
I: A VIE R BOH
> A VIE x

6.H.7 two retreats to one province
A: A BUD S A TRI - VIE; A TRI - VIE
G: A MUN S A SIL - BOH; A SIL - BOH
I: A VIE H; A BOH H
> A TRI VIE; A VIE x; A SIL BOH; A BOH x
--
I: A VIE R TYR; A BOH R TYR
> A VIE x; A BOH x

6.H.8 three retreats to one province
E: A LVP - EDI; F YOR S A LVP - EDI; F NWY H
G: A KIE S A RUH - HOL; A RUH - HOL
R: F EDI H; A SWE S A FIN - NWY; A FIN - NWY; F HOL H
> A LVP EDI; F EDI x; A RUH HOL; F HOL x; A FIN NWY; F NWY x
--
E: F NWY R NTH
R: F EDI R NTH; F HOL R NTH
> F NWY x; F EDI x; F HOL x

6.H.9 a dislodged unit does not contest where its attacker came from
E: F HEL - KIE; F DEN S F HEL - KIE
G: A BER - PRU; F KIE H; A SIL S A BER - PRU
R: A PRU - BER
> F HEL KIE; F KIE x; A BER PRU; A PRU x
--
G: F KIE R BER
> F KIE BER; A PRU x

6.H.10 a retreat that is not allowed contests nothing
E: A KIE H
G: A BER - KIE; A MUN S A BER - KIE; A PRU H
R: A WAR - PRU; A SIL S A WAR - PRU
> A BER KIE; A KIE x; A WAR PRU; A PRU x
--
E: A KIE R BER
G: A PRU R BER
> A KIE x; A PRU BER

6.H.11 a retreat to where a convoyed attacker came from
F: A GAS - MAR VIA; A BUR S A GAS - MAR; F MAO C A GAS - MAR; F WES C A GAS - MAR; F LYO C A GAS - MAR
I: A MAR H
> A GAS MAR; A MAR x
--
I: A MAR R GAS
> A MAR GAS

6.H.12 a retreat to where a convoyed attacker came from, after an attack on it
E: A LVP - EDI VIA; F IRI C A LVP - EDI; F ENG C A LVP - EDI; F NTH C A LVP - EDI
F: F BRE - ENG; F MAO S F BRE - ENG
R: A EDI - LVP VIA; F NWG C A EDI - LVP; F NAO C A EDI - LVP; A CLY S A EDI - LVP
> F BRE ENG; F ENG x; A EDI LVP; A LVP x
--
E: A LVP R EDI
> F ENG x; A LVP EDI

6.H.13 no retreat by the convoy of the movement phase
E: A PIC H; F ENG C A PIC - LON
F: A PAR - PIC; A BRE S A PAR - PIC
> A PAR PIC; A PIC x
--
E: A PIC R LON
> A PIC x

6.H.14 no retreat with the support of the movement phase
E: A PIC H; F ENG S A PIC - BEL
F: A PAR - PIC; A BRE S A PAR - PIC; A BUR H
G: A MUN S A MAR - BUR; A MAR - BUR
> A PAR PIC; A PIC x; A MAR BUR; A BUR x
--
E: A PIC R BEL
F: A BUR R BEL
> A PIC x; A BUR x

6.H.15 no retreat to the other coast of where the attacker came from (so there is no retreat phase)
E: F POR H
F: F SPA/SC - POR; F MAO S F SPA/SC - POR
> F SPA/SC POR; F POR x

6.H.16 a standoff contests both coasts
F: F MAO - SPA/NC; F GAS - SPA/NC; F WES H
I: F TUN S F TYS - WES; F TYS - WES
> F TYS WES; F WES x
--
F: F WES R SPA/SC
> F WES x
"""
