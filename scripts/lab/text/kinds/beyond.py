"""Questions beyond what pocket has learnt, to be refused: some hundred topics in some hundred forms.

Half of them are about the world; the other half look like something that it can do, but for one thing: a sum of
fractions, a JSON object without a text, a word to be written in capitals. Words in braces are drawn from the table of
their name.
"""

import re
from pathlib import Path

from ..example import Draw
from ..grammar import expanded, mistyped, phrased
from ..tables.lists import CITIES, DAYS, ITEMS, NAMES
from ..tables.values import ANIMALS, COLOUR_NAMES, FOODS, JOBS
from ..tables.vocabulary import WORDS, spelled_word
from ..wording import loosened

# Parts between empty lines: what is asked about the world; what looks like something that it can do; what looks so much
# like it that a word or a sign tells them apart; what a text tells, and what is asked about it. Indented lines go on
# with the one before.
_TEXT = Path(__file__).with_name("beyond.txt").read_text(encoding="utf-8").replace("\n  ", " ")
_WORLD, _NEAR, _CLOSE, _TOLD, _ASKED = (part.splitlines() for part in _TEXT.split("\n\n"))


def _rows(text: str) -> tuple[str, ...]:
    return tuple(" ".join(entry.split()) for entry in text.split(";"))


_TOPICS = _rows("""
quantum mechanics; the French Revolution; black holes; the stock market; rugby; Shakespeare; dinosaurs; ancient Rome;
electric cars; philosophy; the Olympic Games; jazz; vaccines; global warming; the internet; cryptocurrency; evolution;
the Second World War; gravity; photosynthesis; yoga; modern architecture; volcanoes; the human brain; democracy;
opera; inflation; artificial intelligence; machine learning; neural networks; relativity; plate tectonics; the water
cycle; DNA; the immune system; blood pressure; diabetes; headaches; antibiotics; depression; sleep; nutrition; weight
loss; marathon training; swimming; basketball; tennis; Formula One; the Champions League; golf; hip hop; classical
music; Beethoven; Mozart; the Beatles; Picasso; Leonardo da Vinci; impressionism; photography; the Renaissance; the
Middle Ages; the Vikings; the pyramids; Cleopatra; Julius Caesar; Alexander the Great; Genghis Khan; the Silk Road;
the Berlin Wall; the moon landing; the space station; rockets; satellites; comets; dark matter; the big bang; atoms;
electrons; nuclear power; solar panels; wind turbines; batteries; magnets; electricity; radio waves; lasers;
microchips; Linux; Windows; Python; JavaScript; Rust; SQL; databases; Docker; Kubernetes; Git; encryption; passwords;
web design; CSS; smartphones; video games; Minecraft; chess openings; poker; board games; knitting; gardening;
pottery; origami; fashion; sushi; sourdough; pizza dough; curry; vegetarian food; coffee roasting; wine tasting;
cheese making; baking; barbecue; the economy; taxes; mortgages; insurance; pensions; unemployment; trade; marketing;
startups; job interviews; leadership; school uniforms; homework; exams; universities; kindergarten; parenting;
marriage; divorce; friendship; love; happiness; death; religion; Buddhism; Islam; Christianity; Hinduism; mythology;
Zeus; Thor; dragons; vampires; ghosts; astrology; dreams; memory; psychology; Freud; ethics; Plato; Kant; logic; the
constitution; the United Nations; the European Union; elections; human rights; immigration; refugees; war; peace;
nuclear weapons; the police; prisons; crime; fraud; law; contracts; copyright; airplanes; trains; ships; bicycles;
traffic; tourism; hotels; camping; mountaineering; deserts; rainforests; oceans; coral reefs; whales; sharks;
elephants; bees; spiders; cats; dogs; horses; penguins; bacteria; viruses; the flu; cancer; surgery; dentists;
glasses; vitamins; calories; alcohol; smoking; exercise; stress; skin care; plastic; recycling; pollution; water
shortage; earthquakes; hurricanes; the weather; clouds; rainbows; the seasons; time travel; parallel universes;
aliens; UFOs; robots; drones; self-driving cars; 3D printing; virtual reality; TikTok; Instagram; Wikipedia; Google;
Amazon; Netflix; Star Wars; Harry Potter; The Lord of the Rings; Hamlet; Don Quixote; anime; manga; comics; cartoons;
Hollywood; theatre; ballet; poetry; novels; grammar; linguistics; Latin; sign language; calculus; algebra; geometry;
statistics; probability; prime numbers; infinity; chaos theory; cryptography; sorting algorithms
""")
_PEOPLE = _rows("""
Albert Einstein; Isaac Newton; Marie Curie; Napoleon; Abraham Lincoln; George Washington; Barack Obama; Elon Musk;
Taylor Swift; Lionel Messi; Cristiano Ronaldo; Serena Williams; Mahatma Gandhi; Nelson Mandela; Queen Elizabeth;
William Shakespeare; Jane Austen; Charles Darwin; Galileo; Aristotle; Socrates; Mozart; Bach; Beethoven; Van Gogh;
Picasso; Michelangelo; Columbus; Neil Armstrong; Steve Jobs; Bill Gates; Ada Lovelace; Alan Turing; Stephen Hawking;
Confucius; Frida Kahlo; Michael Jackson; Madonna; Elvis; Bob Marley; Sherlock Holmes; Batman; Superman; Darth Vader
""")
_PLACES = _rows("""
California; Texas; Florida; Bavaria; Scotland; Wales; Sicily; Hawaii; Alaska; Quebec; Tibet; Catalonia; Tuscany; Ohio;
Africa; Europe; Asia; South America; Antarctica; the Arctic; London; New York; Paris; Tokyo; Rome; Berlin; Sydney;
Hollywood; Silicon Valley; the Sahara; the Alps; the Amazon; Mount Fuji; Lake Victoria; the Danube; the Black Sea;
Scandinavia; the Balkans; Greenland; Bali; Hong Kong; Dubai; Manhattan; Venice; Florence; Barcelona; Munich; Chicago
""")
_LANGUAGES = _rows("""
French; German; Spanish; Italian; Japanese; Korean; Russian; Latin; Arabic; Portuguese; Dutch; Greek; Turkish; Hindi;
Swedish; Polish; Finnish; Swahili; Esperanto; Hebrew; Danish; Welsh; Thai; Vietnamese; Czech
""")
_SHAPES = _rows("""
a poem; a haiku; a short story; a song; an essay; a letter; a speech; a joke; a limerick; a riddle; a blog post; a
tweet; a slogan; a dialogue; a review; a fairy tale; a rap; a summary; a recipe; an email; a cover letter; a product
description; a bedtime story; three sentences; a paragraph; a headline
""")
_ADJECTIVES = _rows("""
good; best; healthy; cheap; famous; big; safe; old; fast; beautiful; strong; useful; dangerous; rare; expensive;
popular; important; funny; boring; hard; smart; heavy; tall; clean; clever; loud
""")
_VERBS = _rows("""
cook; fix; repair; build; clean; grow; draw; learn; sell; buy; open; store; wash; paint; carry; choose; use; install;
play; train; feed; hide; find; move; cut; freeze; boil; plan; stop; avoid; improve
""")

_TABLES = {
    "topic": _TOPICS, "person": _PEOPLE, "place": _PLACES, "language": _LANGUAGES, "shape": _SHAPES,
    "adjective": _ADJECTIVES, "verb": _VERBS, "animal": ANIMALS, "job": JOBS, "food": FOODS, "color": COLOUR_NAMES,
    "city": CITIES, "name": NAMES, "day": DAYS, "letter": tuple("abcdefghijklmnoprstuw"),
    "country": ("France", "Germany", "Spain", "Japan", "Brazil", "India", "Egypt", "Canada", "Kenya", "Norway", "Peru",
                "China", "Italy", "Mexico", "Poland", "Greece", "Turkey", "Cuba", "Chad", "Nepal", "Fiji", "Ghana"),
    "abstract": ("cause", "effect", "purpose", "history", "meaning", "advantage", "problem", "idea", "rule", "type",
                 "benefit", "risk", "future", "origin", "goal", "example", "symptom", "part", "principle", "secret"),
    "act": ("win a prize", "married", "in love", "a good person", "visit {place}", "write a book", "alive", "smoke",
            "happy", "lived in {city}", "famous", "meet {person}", "a {job}", "left handed"),
    "invention": ("the telephone", "the light bulb", "the wheel", "penicillin", "America", "the Mona Lisa", "Hamlet",
                  "the Eiffel Tower", "Microsoft", "the internet", "the piano", "paper", "the theory of relativity",
                  "the steam engine", "Romeo and Juliet", "Don Quixote", "the pyramids", "gunpowder", "pizza", "zero"),
    "relative": ("mother", "brother", "sister", "wife", "husband", "boss", "friend", "teacher", "neighbour", "son",
                 "daughter", "uncle", "dad", "mom", "grandmother", "cousin", "girlfriend", "roommate"),
    "feeling": ("sad", "tired", "hungry", "bored", "lonely", "sick", "happy", "angry", "nervous", "stressed", "cold",
                "in love", "afraid", "dizzy", "excited", "ill", "thirsty", "drunk", "jealous", "homesick"),
    "transport": ("bus", "train", "flight", "ferry", "tram", "subway", "plane", "boat", "taxi"),
    "unit": ("miles", "kilometers", "pounds", "kilograms", "inches", "feet", "liters", "gallons", "ounces", "acres",
             "degrees Fahrenheit", "yards", "light years", "tons", "cups", "hours", "weeks", "stones"),
}  # fmt: skip

_PUT = (
    "{text} {question}", "{text} {question}", "{text}[\n|\n\n]{question}", "{question} {text}",
    "[Text|Passage|Story|Context|Read this|Read the text and answer. Text]: {text}[\n| ][Question|Q]: {question}",
    "[Read|Listen|According to the text|Based on this]: {text} {question}", "{question}\n[Text|Context]: {text}",
)  # fmt: skip
_HOLES = re.compile(r"\{(\w+)\}")


def beyond(draw: Draw) -> str:
    """A question that nothing learnt answers."""
    form = draw.number(0, 99)
    if form < 24:
        return _about_a_text(draw)
    # A line holds ways alike in kind, so that each is as frequent as a line of one.
    way = draw.one(draw.one(_WORLD if form < 50 else _NEAR if form < 65 else _CLOSE).split("; "))
    return phrased(draw, (way,), **_values(draw))


def _about_a_text(draw: Draw) -> str:
    """One to three sentences and a question: it may be answered there or not, pocket doesn't read."""
    first, second = _values(draw), _values(draw)
    told = [expanded(draw, way).format(**values) for way, values in zip(draw.some(_TOLD, 3), (first, second, first))]
    if draw.chance(0.25) and all(each.startswith(f"{first['name']} ") for each in (told[0], told[2])):
        told[0] += told[2].replace(first["name"], " and", 1)
    text = ". ".join(each[0].upper() + each[1:] for each in told[: draw.one((1, 1, 2, 2, 3))]) + "."
    question = loosened(
        draw, mistyped(draw, expanded(draw, draw.one(_ASKED)).format(**draw.one((first, first, second))))
    )
    return expanded(draw, draw.one(_PUT)).format(text=text, question=question)


def _values(draw: Draw) -> dict[str, object]:
    drawn = {
        "a": draw.number(2, 99), "b": draw.number(2, 99), "d": draw.number(2, 9), "e": draw.number(3, 9),
        "h": draw.number(100, 9999), "year": draw.number(1000, 2040), "thing": draw.one((*ITEMS, *WORDS)),
        "word": spelled_word(draw), "word2": spelled_word(draw), "name2": draw.one(NAMES),
        "place2": draw.one(("bank", "school", "hospital", "hotel", "shop", "library", "factory", "museum")),
    }  # fmt: skip
    drawn |= {name: draw.one(table) for name, table in _TABLES.items()}
    # What is drawn may have a hole itself.
    return {name: _HOLES.sub(lambda hole: str(drawn[hole[1]]), str(value)) for name, value in drawn.items()}
