"""Words whose letters matter: common ones of the language, and ones put together from syllables."""

from ..example import Draw

_COMMON = """
apple bread cheese chair table lamp book pen cup knife hat shoe coat clock phone ball key map box bag milk salt rice
tea soap spoon plate rope water river moon house horse fish bird tree flower friend school city rain door hand heart
love peace green white black yellow banana lemon tomato stone wind storm cloud star sand gold iron silver music piano
dance garden window street bridge train plane boat summer winter spring letter paper pencil carrot pepper butter sugar
honey rabbit tiger mouse sheep snake puppy kitten hello world computer python pocket strawberry chocolate elephant
keyboard mountain library kitchen science orange purple planet animal family doctor teacher market morning evening
village castle dragon monkey lion bear wolf duck goose eagle coffee cookie sandwich potato onion grape cherry mango
peach camera guitar violin drum engine bottle basket ladder hammer mirror candle blanket pillow jacket button question
answer number language country island ocean forest desert valley shadow thunder rainbow winner dinner lunch breakfast
cat dog cow pig hen fox owl bee ant frog sun sky sea ice snow fire earth air day night week month year hour minute
second time life man woman boy girl child baby mother father sister brother king queen prince princess red blue pink
brown gray one two three four five six seven eight nine ten good bad big small old new young long short high low hot
cold warm cool fast slow hard soft easy happy sad angry tired hungry thirsty clean dirty rich poor strong weak bright
dark light heavy quiet loud early late first last next left right open close begin start stop finish write read speak
listen watch look see hear feel touch smell taste walk run jump swim fly climb ride drive work play sleep wake eat
drink cook bake wash buy sell give take bring carry hold throw catch pull push break build cut draw paint sing laugh
smile cry think know learn teach remember forget understand believe hope wish dream want need like hate help try use
make change grow live die win lose find hide seek keep leave stay come go arrive return travel visit meet call ask
tell talk shout whisper promise surprise present party birthday holiday vacation journey adventure story poem song
picture movie theater museum hospital airport station hotel restaurant office factory farm field hill lake beach desk
shelf drawer wall floor roof garage stairs carpet curtain sofa bed bath shower towel toothbrush comb scissors needle
thread cotton leather wool plastic glass metal wooden rubber copper bronze diamond pearl crystal bicycle motorcycle
truck taxi subway ship submarine rocket helicopter balloon kite puzzle game toy doll robot machine tool wrench screw
nail battery cable socket lantern torch lighter match tent backpack compass whistle flag trumpet flute orchestra
concert festival parade circus magic wizard witch giant dwarf fairy monster ghost pirate treasure soldier police
farmer baker butcher nurse lawyer engineer scientist artist painter writer singer dancer actor pilot sailor driver
captain president mayor judge student professor neighbor stranger guest visitor customer butterfly spider mosquito
dolphin whale shark octopus penguin parrot pigeon sparrow turkey chicken rooster donkey camel giraffe zebra leopard
panther kangaroo koala panda gorilla crocodile lizard turtle hamster squirrel hedgehog pumpkin cucumber lettuce
cabbage spinach garlic mushroom broccoli cauliflower pineapple watermelon blueberry raspberry apricot avocado coconut
walnut almond peanut biscuit pancake pizza pasta noodle soup salad sausage bacon burger chips popcorn candy cream
yogurt vanilla cinnamon ginger mustard vinegar alphabet sentence grammar vowel consonant syllable dictionary
encyclopedia newspaper magazine television internet website password software hardware program monitor printer scanner
speaker battery memory network server database algorithm function variable integer string boolean matrix vector
triangle square circle rectangle pentagon hexagon sphere cube pyramid history geography biology chemistry physics
mathematics philosophy psychology economics politics religion culture tradition january february march april may june
july august september october november december monday tuesday wednesday thursday friday saturday sunday mississippi
banana committee balloon address success possess coffee bookkeeper tomorrow yesterday beautiful wonderful delicious
dangerous important different difficult expensive interesting comfortable terrible horrible excellent perfect possible
impossible necessary famous popular modern ancient special simple complex strange funny serious curious lovely
friendly lonely gentle brave clever stupid lazy polite honest proud jealous nervous calm gloomy cheerful level radar
noon civic madam kayak racecar stressed desserts drawer reward diaper live evil star rats stop pots tool loop pool
umbrella calendar envelope telephone microphone microscope telescope thermometer refrigerator dishwasher microwave
toaster vacuum broom bucket sponge laundry iron hanger zipper pocket collar sleeve sweater trousers skirt dress shirt
sock glove scarf boots sandals slippers necklace bracelet earring ring watch wallet purse suitcase luggage ticket
passport visa border customs penstock token model engine worker daemon kernel tensor cache prompt batch stream sample
greedy beam layer weight
"""
WORDS = tuple(dict.fromkeys(_COMMON.split()))
# The plainest ones, which stand in most sentences.
SMALL_WORDS = (
    "the", "a", "is", "on", "in", "my", "I", "we", "you", "and", "like", "to",
    "at", "has", "of", "was", "not", "it", "he", "she", "this", "with", "for", "are",
)  # fmt: skip

_ONSETS = (*"bcdfghjklmnprstvwyz", "bl", "br", "ch", "cl", "cr", "dr", "fl", "gr", "pl", "pr", "qu", "sh", "st",
           "str", "th", "kn", "tr", "sw", "sp", "x", "gl", "wh", "sc", "")  # fmt: skip
_VOWELS = (*"aeiou", *"aeiou", "ai", "ea", "ee", "oo", "ou", "y", "ie", "oa", "au")
_CODAS = (
    "", "", "", "", *"dklmnprst", "ck", "ll", "ng", "nt", "ss", "st", "x", "rd", "mp", "tion", "er", "ing", "ly", "z",
    "b", "g",
)  # fmt: skip

# The commonest Chinese characters: the first level of China's first standard, in its order.
HANZI = tuple(
    character
    for row in range(0xB0, 0xD8)
    for character in bytes(byte for cell in range(0xA1, 0xFF) for byte in (row, cell)).decode("gb2312", "ignore")
)


def chinese_word(draw: Draw) -> str:
    """One to four characters that mean nothing together."""
    return "".join(draw.one(HANZI) for _ in range(draw.one((1, 2, 2, 2, 3, 4))))


def made_up_word(draw: Draw) -> str:
    word = "".join(draw.one(_ONSETS) + draw.one(_VOWELS) + draw.one(_CODAS) for _ in range(draw.one((1, 2, 2, 3))))
    return word if len(word) > 2 else made_up_word(draw)


def spelled_word(draw: Draw) -> str:
    """A word whose letters matter: one that exists, or one put together."""
    return draw.one(WORDS) if draw.chance(0.6) else made_up_word(draw)
