"""Everyday facts, each with the ways it is asked for: the calendar, measures, animals, the body, simple science.

Brackets hold alternatives (`grammar.py`). A row is one question in many wordings and its answer. Knows no examples.
"""

import re
from collections.abc import Sequence

Row = tuple[Sequence[str], str]


def _how_many(part: str, whole: str, count: str) -> Row:
    """How many of these are in one of those."""
    return (
        f"How many {part} [are|are there] in {whole}?", f"How many {part} does {whole} have?",
        f"How many {part} in {whole}?",
        f"[Number|The number] of {part} in {whole}", f"{whole} has how many {part}?", f"How many {part} make {whole}?",
        f"How many {part} has {whole}?", f"What is the number of {part} in {whole}?",
        f"[Tell me|Say|I want to know] how many {part} [there are in {whole}|{whole} has].",
    ), count  # fmt: skip


_COUNTS = (
    ("days", "[a|one|1] week", "7"), ("days", "the week", "7"),
    ("days", "[a|one] [year|normal year|regular year]", "365"), ("days", "a leap year", "366"),
    ("months", "[a|one|1|the] year", "12"), ("weeks", "[a|one|the] year", "52"), ("hours", "[a|one|1] day", "24"),
    ("minutes", "[an|one|1] hour", "60"), ("seconds", "[a|one|1] minute", "60"), ("minutes", "half an hour", "30"),
    ("hours", "half a day", "12"), ("days", "a weekend", "2"), ("seasons", "[a|one|the] year", "4"),
    ("years", "[a|one] decade", "10"), ("years", "[a|one] century", "100"), ("years", "[a|one] millennium", "1000"),
    ("days", "two weeks", "14"), ("hours", "two days", "48"), ("minutes", "two hours", "120"),
    ("days", "a fortnight", "14"), ("months", "half a year", "6"), ("seconds", "[an|one] hour", "3600"),
    ("hours", "a week", "168"), ("months", "two years", "24"), ("quarters", "a year", "4"),
    ("weekdays", "a week", "5"), ("weeks", "a month", "4"), ("letters", "the [alphabet|English alphabet]", "26"),
    ("vowels", "the alphabet", "5"), ("items", "[a|one] dozen", "12"), ("eggs", "a dozen", "12"),
    ("things", "a pair", "2"), ("cents", "[a|one] [dollar|euro]", "100"), ("centimeters", "[a|one] meter", "100"),
    ("centimetres", "[a|one] metre", "100"), ("meters", "[a|one] kilometer", "1000"),
    ("metres", "[a|one] kilometre", "1000"), ("grams", "[a|one] [kilogram|kilo]", "1000"),
    ("millimeters", "[a|one] centimeter", "10"), ("planets", "[the|our] solar system", "8"),
    ("players", "a football team", "11"), ("strings", "a [guitar|normal guitar]", "6"), ("strings", "a violin", "4"),
    ("colors", "[a|the] rainbow", "7"), ("colours", "[a|the] rainbow", "7"),
    ("states", "the [USA|US|United States]", "50"), ("bytes", "a kilobyte", "1024"), ("bits", "[a|one] byte", "8"),
    ("degrees", "a [circle|full circle]", "360"), ("degrees", "a right angle", "90"), ("teeth", "an adult", "32"),
    ("continents", "the world", "7"), ("oceans", "the world", "5"), ("inches", "[a|one] foot", "12"),
    ("feet", "a yard", "3"), ("cards", "a deck", "52"),
)  # fmt: skip
_HAS = (
    ("sides", "[a|one] triangle", "3"), ("corners", "a triangle", "3"), ("angles", "a triangle", "3"),
    ("sides", "[a|one] square", "4"), ("corners", "a square", "4"), ("sides", "a rectangle", "4"),
    ("sides", "[a|one] pentagon", "5"), ("sides", "[a|one] hexagon", "6"), ("sides", "an octagon", "8"),
    ("faces", "[a|one] cube", "6"), ("sides", "[a|one] cube", "6"), ("sides", "a die", "6"),
    ("legs", "[a|one] spider", "8"), ("legs", "[an|one] insect", "6"), ("legs", "an ant", "6"), ("legs", "a bee", "6"),
    ("legs", "[a|one] dog", "4"), ("legs", "[a|one] cat", "4"), ("legs", "[a|one] horse", "4"),
    ("legs", "[a|one] cow", "4"), ("legs", "[a|one] bird", "2"), ("legs", "a chicken", "2"),
    ("legs", "a [human|person]", "2"), ("legs", "a snake", "0"), ("legs", "an elephant", "4"),
    ("legs", "a chair", "4"), ("arms", "an octopus", "8"), ("legs", "an octopus", "8"), ("wings", "[a|one] bird", "2"),
    ("eyes", "a [human|person]", "2"), ("ears", "a [human|person]", "2"), ("fingers", "a [human|person]", "10"),
    ("toes", "a [human|person]", "10"), ("fingers", "[a|one] hand", "5"), ("hands", "a [human|person]", "2"),
    ("wheels", "[a|one] car", "4"), ("wheels", "[a|one] [bicycle|bike]", "2"), ("wheels", "a tricycle", "3"),
    ("hands", "a clock", "2"), ("noses", "a [human|person]", "1"), ("moons", "[the earth|earth]", "1"),
    ("hearts", "a [human|person]", "1"), ("eyes", "a cat", "2"), ("wings", "a butterfly", "4"),
    ("feet", "a [human|person]", "2"),
)  # fmt: skip

_MONTH_DAYS = (
    ("January", 31), ("February", 28), ("March", 31), ("April", 30), ("May", 31), ("June", 30), ("July", 31),
    ("August", 31), ("September", 30), ("October", 31), ("November", 30), ("December", 31),
)  # fmt: skip

# The question in its wordings | the answer; what is indented goes on with the line before.
_SINGLE = """
[What|Which] is the first month [of|in] the year?; [The first|First] month of the year; Which month comes first?;
    [Which|What] month does the year [start|begin] with?; Name the first month. | January
[What|Which] is the last month [of|in] the year?; [The last|Last] month of the year; Which month comes last?;
    [Which|What] month does the year end with?; Name the last month. | December
[What|Which] is the first day of the week?; [The first|First] day of the week;
    Which day does the week [start|begin] with?; Which day comes first in the week? | Monday
[What|Which] is the last day of the week?; [The last|Last] day of the week; Which day does the week end with?;
    Which day comes last in the week? | Sunday
[What|Which] is the shortest month?; [What|Which] month is the shortest?;
    [Which|What] month has [the fewest|28|the least] days?; The shortest month of the year | February
[What|Name|List|Tell me|Say|Give me] [the|all the|all] days of the week.;
    What are the [days of the week|seven days|names of the days|weekdays]?; Days of the week;
    [The seven|All seven] days of the week | Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday
[Name|List|Tell me|Say|Give me] [the|all the|all] months [of the year|].;
    What are the [months of the year|twelve months|names of the months|months]?; Months of the year;
    All [twelve|12] months
    | January, February, March, April, May, June, July, August, September, October, November, December
[Name|List|Tell me|Give me] the [four seasons|seasons|seasons of the year].;
    What are the [four seasons|seasons|seasons of the year]?; The four seasons | Spring, summer, autumn, winter
[Which days are|What days are] [the|in the|on the] weekend?; What is the weekend?; Days of the weekend
    | Saturday and Sunday
[What|Which] season comes after winter?; What [follows|comes after] winter?; [Season after|After] winter | Spring
[What|Which] season comes after spring?; What [follows|comes after] spring?; [Season after|After] spring | Summer
[What|Which] season comes after summer?; What [follows|comes after] summer?; [Season after|After] summer | Autumn
[What|Which] season comes after [autumn|fall]?; What [follows|comes after] [autumn|fall]?; Season after [autumn|fall]
    | Winter
[What|Which] season comes before winter?; Season before winter | Autumn
[What|Which] season comes before summer?; Season before summer | Spring
[What|Which] is the [hottest|warmest] season?; Which season is the [hottest|warmest]? | Summer
[What|Which] is the coldest season?; Which season is the coldest? | Winter
At [what|which] temperature does water boil?; [When|At how many degrees] does water boil?;
    [What is the|The] boiling point of water; Water boils at [what|which] temperature?; How hot is boiling water?
    | 100 degrees Celsius
At [what|which] temperature does water freeze?; [When|At how many degrees] does water freeze?;
    [What is the|The] freezing point of water; Water freezes at [what|which] temperature? | 0 degrees Celsius
[What is|What's|Give me|Tell me] the [chemical formula|formula] [of|for] water.; The formula [of|for] water;
    [What is|Formula of] water in chemistry? | H2O
What is H2O?; H2O is what?; What does H2O mean?; What is H2O called?; H2O | Water
[What is|What's] frozen water [called|]?; What is ice made of?; What do you call frozen water?
    | Frozen water is called ice.
[What|Which] planet do we live on?; On [which|what] planet do we live?; [What is|What's] our planet called?;
    [The name|Name] of our planet; Which planet are we on? | Earth
[What|Which] is the [largest|biggest] planet?;
    [The largest|The biggest|Biggest|Largest] planet [in the solar system|]; Which planet is the [largest|biggest]?
    | Jupiter
[What|Which] is the smallest planet?; [The smallest|Smallest] planet [in the solar system|];
    Which planet is the smallest? | Mercury
[What|Which] planet is [closest|nearest] to the sun?; [The closest|The nearest] planet to the sun;
    [What is|Which is] the planet closest to the sun? | Mercury
[What|Which] planet is [red|the red planet|called the red planet]?; What is the red planet?; The red planet | Mars
[What|Which] planet has [rings|big rings|the rings]?; The planet with rings | Saturn
[What|Which] is the [largest|biggest] animal?;
    [The biggest|The largest|Biggest|Largest] animal [in the world|on earth|]; Which animal is the [largest|biggest]?
    | The blue whale
[What|Which] is the [largest|biggest] land animal?; The [largest|biggest] land animal;
    Which land animal is the biggest? | The elephant
[What|Which] is the fastest [land animal|animal]?; [The fastest|Fastest] animal [on land|];
    Which animal is the fastest? | The cheetah
[What|Which] is the tallest animal?; [The tallest|Tallest] animal [in the world|]; Which animal is the tallest?;
    Which animal has a [long|very long] neck? | The giraffe
[What|Which] is the [highest|tallest] mountain [in the world|on earth|]?;
    [The highest|The tallest|Highest|Tallest] mountain [in the world|on earth]; What mountain is the highest?
    | Mount Everest
[What|Which] is the longest river [in the world|on earth|]?; [The longest|Longest] river [in the world|on earth];
    Which river is the longest? | The Nile
[What|Which] is the [largest|biggest] ocean [in the world|on earth|]?;
    [The largest|The biggest|Biggest|Largest] ocean; Which ocean is the [largest|biggest]? | The Pacific Ocean
[What|Which] is the [largest|biggest] country [in the world|on earth|by area|]?;
    [The largest|The biggest|Biggest|Largest] country [in the world|]; Which country is the [largest|biggest]?
    | Russia
[What|Which] is the smallest country [in the world|on earth|]?; [The smallest|Smallest] country [in the world|];
    Which country is the smallest? | Vatican City
[What|Which] is the [largest|biggest] continent?; [The largest|The biggest|Biggest|Largest] continent;
    Which continent is the [largest|biggest]? | Asia
[What|Which] is the smallest continent?; [The smallest|Smallest] continent; Which continent is the smallest?
    | Australia
[What|Which] is the first letter [of|in] the alphabet?; [The first|First] letter of the alphabet;
    The alphabet [starts|begins] with which letter? | A
[What|Which] is the last letter [of|in] the alphabet?; [The last|Last] letter of the alphabet;
    The alphabet ends with which letter? | Z
[What|Which] are the vowels?; [Name|List|Tell me] the vowels.; The [vowels|five vowels] | A, E, I, O, U
[Say|Tell me|Recite|Write|Give me|List|What is] the alphabet.; The alphabet;
    [Write|Say] [the|all] letters of the alphabet.
    | A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z
Where does the sun [rise|come up]?; The sun rises in [the|which direction]; In which direction does the sun rise?
    | In the east
Where does the sun [set|go down]?; The sun sets in [the|which direction]; In which direction does the sun set?
    | In the west
[What do|What does] bees make?; What [is made by|do we get from] bees?; Bees make what? | Honey
[What do|What does] cows [give|give us]?; What do we get from cows?; What do cows [drink and give|produce]? | Milk
What do [hens|chickens] lay?; What do we get from [hens|chickens]?; Hens lay what? | Eggs
What is [bread|flour] made of?; What do you make bread from?; Bread is made of what? | Flour
What is cheese made of?; What do you make cheese from?; Cheese is made [of|from] what? | Milk
What is wine made of?; What do you make wine from?; Wine is made [of|from] what? | Grapes
What do [plants|trees] need to [grow|live]?; [Plants|Trees] need what to grow? | Water and light
What do we breathe?; What do [people|humans] breathe?; [Which|What] gas do we [breathe|need to breathe]? | Oxygen
Is the sun a star or a planet?; What is the sun?; What kind of thing is the sun? | The sun is a star.
What is the earth?; Is the earth a star or a planet?; Is [the earth|earth] a planet? | The earth is a planet.
Is the earth [round|flat|round or flat]?; What shape is the earth?; What is the shape of the earth?
    | The earth is round.
What shape is a [ball|wheel|football]?; What is the shape of a [ball|wheel]? | Round
Is [ice|snow] [hot or cold|cold or hot|cold]?; How is [ice|snow], hot or cold? | Cold
Is fire [hot or cold|cold or hot|hot]?; How is fire, hot or cold? | Hot
Is a whale a fish [or a mammal|]?; What kind of animal is a whale? | A whale is a mammal.
Is a [tomato|tomatoe] a fruit [or a vegetable|]?; What is a tomato, a fruit or a vegetable? | A tomato is a fruit.
What is the currency of [Japan|japan]?; [Which|What] currency [is used in|has] Japan? | Yen
What is the currency of [the USA|the US|America|the United States]?;
    [Which|What] currency [is used in|has] [the USA|America]? | Dollar
What is the currency of [the UK|England|Britain]?; [Which|What] currency [is used in|has] [the UK|England]? | Pound
What is the currency of [Germany|France|Italy|Spain|Europe]?;
    [Which|What] currency [is used in|has] [Germany|France|Spain|Italy]? | Euro
What is the currency of [China|china]?; [Which|What] currency [is used in|has] China? | Yuan
[Which|What] language do [they|people] speak in [France|france]?;
    [What language is|Which language is] spoken in France?; The language of France | French
[Which|What] language do [they|people] speak in [Germany|Austria]?;
    [What language is|Which language is] spoken in [Germany|Austria]?; The language of Germany | German
[Which|What] language do [they|people] speak in [Spain|Mexico|Argentina]?;
    [What language is|Which language is] spoken in [Spain|Mexico]?; The language of Spain | Spanish
[Which|What] language do [they|people] speak in [Brazil|Portugal]?;
    [What language is|Which language is] spoken in [Brazil|Portugal]?; The language of Portugal | Portuguese
[Which|What] language do [they|people] speak in [Italy|italy]?;
    [What language is|Which language is] spoken in Italy?; The language of Italy | Italian
[Which|What] language do [they|people] speak in [China|china]?;
    [What language is|Which language is] spoken in China?; The language of China | Chinese
[Which|What] language do [they|people] speak in [Japan|japan]?;
    [What language is|Which language is] spoken in Japan?; The language of Japan | Japanese
[Which|What] language do [they|people] speak in [the USA|England|Australia|the UK|America]?;
    [What language is|Which language is] spoken in [the USA|England|Australia]? | English
一[周|星期|个星期]有[几天|多少天]?; 一[周|星期]几天?; 一个星期有几天? | 7
一年有[几|多少]个月?; 一年几个月?; 一年有多少月? | 12
一年有[多少|几]天?; 一年多少天? | 365
一天有[多少|几个|多少个]小时?; 一天几个小时?; 一天有多少个小时? | 24
一[小时|个小时]有[多少|几]分钟?; 一小时多少分钟? | 60
一分钟有[多少|几]秒?; 一分钟多少秒? | 60
一年有[几|多少]个季节?; 一年有几季? | 4
三角形有几[条|个][边|角]?; 三角形有[几条边|几个角]? | 3
[蜘蛛|一只蜘蛛]有[几|多少]条腿? | 8
[狗|一只狗|猫|一只猫|马]有[几|多少]条腿? | 4
水的[化学式|分子式]是什么?; 水的化学式 | H2O
世界上最高的山是[什么|哪座]?; 最高的山是什么?; 哪座山最高? | 珠穆朗玛峰
最大的行星是[什么|哪个]?; 太阳系最大的行星是哪个? | 木星
水在多少度[沸腾|烧开]?; 水的沸点是多少? | 100度
水在多少度结冰?; 水的冰点是多少? | 0度
一年的第一个月是[几月|哪个月]?; 第一个月是几月? | 一月
一年的最后一个月是[几月|哪个月]?; 最后一个月是几月? | 十二月
一打[是|有]多少[个|]?; 一打有几个? | 12
一米[是|有|等于]多少厘米?; 1米等于多少厘米? | 100
一公里[是|有|等于]多少米?; 1公里等于多少米? | 1000
一公斤[是|有|等于]多少克? | 1000
太阳从哪[边|里|个方向]升起?; 太阳在哪边升起? | 东边
太阳从哪[边|里|个方向]落下?; 太阳在哪边落下? | 西边
"""


def _joined(text: str) -> str:
    """Join every indented line to the one before it."""
    text = re.sub(r"\n +\| ", " | ", re.sub(r";\n +", "; ", text))
    return re.sub(r"\n +", "", text)


def _singles() -> list[Row]:
    rows = []
    for line in filter(None, _joined(_SINGLE).splitlines()):
        asked, _, answer = line.rpartition(" | ")
        rows.append((tuple(asked.split("; ")), answer))
    return rows


def _days_of(month: str, days: int) -> Row:
    return _how_many("days", f"[{month}|the month of {month}]", str(days))


ROWS: tuple[Row, ...] = (
    *(_how_many(*row) for row in (*_COUNTS, *_HAS)),
    *(_days_of(*row) for row in _MONTH_DAYS),
    *_singles(),
)
