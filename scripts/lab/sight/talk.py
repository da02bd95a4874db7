"""Questions without a picture: greetings, who it is, pictures that aren't there, and what it can't do."""

from ..text.example import Draw
from .asking import Ask, Seen
from .canvas import COLOURS
from .shape_questions import plural
from .shapes import SHAPES

_MISSING = (
    "How many {things}[ are there| do you see| can you see| are in the picture|]?",
    "[What|Which] [colour|color] [is|has] the {shape}[ here| in the picture|]?",
    "[What|Which] word [is this|do you see|is printed here|is in the picture]?",
    "[What|Which] number [is this|do you see|is printed here|is in the picture]?",
    "Where is the {shape}[ in the picture| here|]?",
    "Which bar is [the |][tallest|shortest|highest][ here| in the chart|]?",
    "[Describe|Please describe|Can you describe] [the|this|my] [picture|image][ in a sentence| briefly|].",
    "What [do you see|can you see|is shown|is] [in the|in this|in my] [picture|image]?",
    "[Is there a|Do you see a|Can you see a] {shape}[ in the picture|]?",
    "[Which|Which one] of the [two |]pictures [has|shows] a {shape}?",
)
NO_PICTURE = "I see no picture."
_SAID: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("hello", ("[Hello|Hi|Hey|Good morning|Good evening|Good day][ there| you| pocket|][!|.|]",),
     "Hello! Show me a picture."),
    ("thanks", ("[Thanks|Thank you|Thank you so much|Thanks a lot|Many thanks][ for that| for this|][!|.|]",),
     "You are welcome."),
    ("bye", ("[Bye|Goodbye|See you|See you later|Good night|Bye bye][ then| now|][!|.|]",), "Goodbye!"),
    ("who", ("[Who are you|What are you|What is your name|Tell me your name|What are you called|Who is this"
             "|Introduce yourself|Tell me who you are|And who are you|Do you have a name]?",),
     "I am pocket-sight, a tiny model that looks at pictures."),
    ("able", ("What can [you|you do|you see|you tell me|you look at][ here| for me|]?",
              "[How can you help me|What are you good at|What are you for|What do you know|What can I ask you]?"),
     "I see shapes, colours, numbers, short words and bar charts."),
)  # fmt: skip
_OTHER = (
    "[What is|What's|Tell me] the capital of [France|Japan|Italy|Spain|China|Peru|Kenya|Cuba|Egypt]?",
    "[Who wrote|Who painted|Who invented|Who built] [this book|the bible|the wheel|Hamlet|the radio|the tower]?",
    "[Write|Tell me|Give me|Sing me] [a poem|a story|a joke|a song|a letter|a recipe][ about love| about water|].",
    "[What is|Compute|Calculate] [12 + 7|3 * 8|45 - 6|100 / 4|9 + 16|72 - 13]?",
    "[How old is|How far is|How big is|How heavy is] [the sun|the moon|a whale|Berlin|the sea|my dog]?",
    "[What time is it|What day is it|How is the weather|Will it rain|Who won the game][ today| now|]?",
    "[Translate|Explain|Summarize] [this text|love|the law|a sentence|this page][ to me| for me|].",
)
REFUSAL = "I only know pictures."


def talk_heard(draw: Draw) -> Seen:
    """Words without a picture."""
    values = {"shape": draw.one(SHAPES), "things": f"{draw.one(list(COLOURS))} {plural(draw.one(SHAPES))}"}
    _, said, answer = draw.one(_SAID)
    asks = [Ask("talk", (), (missing,), NO_PICTURE, values) for missing in draw.some(_MISSING, 3)]
    asks += [Ask("talk", (), said, answer), Ask("talk", (), (draw.one(_OTHER),), REFUSAL)]
    return Seen((), tuple(asks))
