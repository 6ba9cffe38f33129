"""The standard map: 75 provinces, 34 supply centres, seven powers.

Each line of the table is a province: its code, its name, the power whose home centre it is or ``centre`` if it is a
neutral centre, then its borders. An inland province has borders for armies only, a sea for fleets only. A province with
two coasts has one list of borders for fleets for each coast. Source: the board of the published rules.
"""

from flyball.app.games.diplomacy.maps import Map, parse_map

POWERS = {
    "AUSTRIA": "A BUD, A VIE, F TRI",
    "ENGLAND": "F EDI, F LON, A LVP",
    "FRANCE": "F BRE, A MAR, A PAR",
    "GERMANY": "A BER, F KIE, A MUN",
    "ITALY": "F NAP, A ROM, A VEN",
    "RUSSIA": "A MOS, F SEV, F STP/SC, A WAR",
    "TURKEY": "F ANK, A CON, A SMY",
}

PROVINCES = """
ADR Adriatic Sea: fleets ALB APU ION TRI VEN
AEG Aegean Sea: fleets BUL/SC CON EAS GRE ION SMY
ALB Albania: armies GRE SER TRI; fleets ADR GRE ION TRI
ANK Ankara, home of TURKEY: armies ARM CON SMY; fleets ARM BLA CON
APU Apulia: armies NAP ROM VEN; fleets ADR ION NAP VEN
ARM Armenia: armies ANK SEV SMY SYR; fleets ANK BLA SEV
BAL Baltic Sea: fleets BER BOT DEN KIE LVN PRU SWE
BAR Barents Sea: fleets NWG NWY STP/NC
BEL Belgium, centre: armies BUR HOL PIC RUH; fleets ENG HOL NTH PIC
BER Berlin, home of GERMANY: armies KIE MUN PRU SIL; fleets BAL KIE PRU
BLA Black Sea: fleets ANK ARM BUL/EC CON RUM SEV
BOH Bohemia: armies GAL MUN SIL TYR VIE
BOT Gulf of Bothnia: fleets BAL FIN LVN STP/SC SWE
BRE Brest, home of FRANCE: armies GAS PAR PIC; fleets ENG GAS MAO PIC
BUD Budapest, home of AUSTRIA: armies GAL RUM SER TRI VIE
BUL Bulgaria, centre: armies CON GRE RUM SER; fleets/EC BLA CON RUM; fleets/SC AEG CON GRE
BUR Burgundy: armies BEL GAS MAR MUN PAR PIC RUH
CLY Clyde: armies EDI LVP; fleets EDI LVP NAO NWG
CON Constantinople, home of TURKEY: armies ANK BUL SMY; fleets AEG ANK BLA BUL/EC BUL/SC SMY
DEN Denmark, centre: armies KIE SWE; fleets BAL HEL KIE NTH SKA SWE
EAS Eastern Mediterranean: fleets AEG ION SMY SYR
EDI Edinburgh, home of ENGLAND: armies CLY LVP YOR; fleets CLY NTH NWG YOR
ENG English Channel: fleets BEL BRE IRI LON MAO NTH PIC WAL
FIN Finland: armies NWY STP SWE; fleets BOT STP/SC SWE
GAL Galicia: armies BOH BUD RUM SIL UKR VIE WAR
GAS Gascony: armies BRE BUR MAR PAR SPA; fleets BRE MAO SPA/NC
GRE Greece, centre: armies ALB BUL SER; fleets AEG ALB BUL/SC ION
HEL Helgoland Bight: fleets DEN HOL KIE NTH
HOL Holland, centre: armies BEL KIE RUH; fleets BEL HEL KIE NTH
ION Ionian Sea: fleets ADR AEG ALB APU EAS GRE NAP TUN TYS
IRI Irish Sea: fleets ENG LVP MAO NAO WAL
KIE Kiel, home of GERMANY: armies BER DEN HOL MUN RUH; fleets BAL BER DEN HEL HOL
LON London, home of ENGLAND: armies WAL YOR; fleets ENG NTH WAL YOR
LVN Livonia: armies MOS PRU STP WAR; fleets BAL BOT PRU STP/SC
LVP Liverpool, home of ENGLAND: armies CLY EDI WAL YOR; fleets CLY IRI NAO WAL
LYO Gulf of Lyon: fleets MAR PIE SPA/SC TUS TYS WES
MAO Mid-Atlantic Ocean: fleets BRE ENG GAS IRI NAF NAO POR SPA/NC SPA/SC WES
MAR Marseilles, home of FRANCE: armies BUR GAS PIE SPA; fleets LYO PIE SPA/SC
MOS Moscow, home of RUSSIA: armies LVN SEV STP UKR WAR
MUN Munich, home of GERMANY: armies BER BOH BUR KIE RUH SIL TYR
NAF North Africa: armies TUN; fleets MAO TUN WES
NAO North Atlantic Ocean: fleets CLY IRI LVP MAO NWG
NAP Naples, home of ITALY: armies APU ROM; fleets APU ION ROM TYS
NTH North Sea: fleets BEL DEN EDI ENG HEL HOL LON NWG NWY SKA YOR
NWG Norwegian Sea: fleets BAR CLY EDI NAO NTH NWY
NWY Norway, centre: armies FIN STP SWE; fleets BAR NTH NWG SKA STP/NC SWE
PAR Paris, home of FRANCE: armies BRE BUR GAS PIC
PIC Picardy: armies BEL BRE BUR PAR; fleets BEL BRE ENG
PIE Piedmont: armies MAR TUS TYR VEN; fleets LYO MAR TUS
POR Portugal, centre: armies SPA; fleets MAO SPA/NC SPA/SC
PRU Prussia: armies BER LVN SIL WAR; fleets BAL BER LVN
ROM Rome, home of ITALY: armies APU NAP TUS VEN; fleets NAP TUS TYS
RUH Ruhr: armies BEL BUR HOL KIE MUN
RUM Rumania, centre: armies BUD BUL GAL SER SEV UKR; fleets BLA BUL/EC SEV
SER Serbia, centre: armies ALB BUD BUL GRE RUM TRI
SEV Sevastopol, home of RUSSIA: armies ARM MOS RUM UKR; fleets ARM BLA RUM
SIL Silesia: armies BER BOH GAL MUN PRU WAR
SKA Skagerrak: fleets DEN NTH NWY SWE
SMY Smyrna, home of TURKEY: armies ANK ARM CON SYR; fleets AEG CON EAS SYR
SPA Spain, centre: armies GAS MAR POR; fleets/NC GAS MAO POR; fleets/SC LYO MAO MAR POR WES
STP St Petersburg, home of RUSSIA: armies FIN LVN MOS NWY; fleets/NC BAR NWY; fleets/SC BOT FIN LVN
SWE Sweden, centre: armies DEN FIN NWY; fleets BAL BOT DEN FIN NWY SKA
SYR Syria: armies ARM SMY; fleets EAS SMY
TRI Trieste, home of AUSTRIA: armies ALB BUD SER TYR VEN VIE; fleets ADR ALB VEN
TUN Tunis, centre: armies NAF; fleets ION NAF TYS WES
TUS Tuscany: armies PIE ROM VEN; fleets LYO PIE ROM TYS
TYR Tyrolia: armies BOH MUN PIE TRI VEN VIE
TYS Tyrrhenian Sea: fleets ION LYO NAP ROM TUN TUS WES
UKR Ukraine: armies GAL MOS RUM SEV WAR
VEN Venice, home of ITALY: armies APU PIE ROM TRI TUS TYR; fleets ADR APU TRI
VIE Vienna, home of AUSTRIA: armies BOH BUD GAL TRI TYR
WAL Wales: armies LON LVP YOR; fleets ENG IRI LON LVP
WAR Warsaw, home of RUSSIA: armies GAL LVN MOS PRU SIL UKR
WES Western Mediterranean: fleets LYO MAO NAF SPA/SC TUN TYS
YOR Yorkshire: armies EDI LON LVP WAL; fleets EDI LON NTH
"""

STANDARD: Map = parse_map("standard", PROVINCES, POWERS, to_win=18)
