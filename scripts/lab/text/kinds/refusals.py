"""Questions that it refuses: other topics, multiplications, invented places, meaningless words.

Questions put together from a few dozen words, in the wordings of all the world: whatever resembles nothing that pocket
has learnt is to be refused. What happens to be a greeting ("hi" may well come of letters drawn) is none of them.
"""

from ..example import Draw, Example, one_turn
from ..grammar import phrased
from ..tables.countries import CAPITALS
from ..tables.lists import ITEMS, NAMES, TOPICS, ZH_ITEMS, ZH_NAMES, ZH_TOPICS
from ..tables.vocabulary import WORDS, chinese_word, made_up_word, spelled_word
from ..wording import core, is_chinese
from .beyond import beyond
from .facts import ASKED_OF_WORDS, CAPITAL_OF, ZH_CAPITAL_OF
from .greetings import MEANT
from .sums import TIMES

ONLY = "I don't know that. I only know small sums, words, capitals and a few other facts."
ZH_ONLY = "我不知道。我只知道简单的加减法、单词、首都和少数常识。"

_ABOUT = (
    "[Explain|Describe|Define|Discuss|Summarize|Summarise] {x}[ to me| in simple words| briefly| in detail|][.|]",
    "[Tell me|Teach me|Talk to me|I want to know|I want to learn|Inform me] [about|more about|everything about|"
    "something about] {x}[.|]", "[Who|When did someone] [invented|discovered|created|started|founded] {x}?",
    "[Write|Compose|Create|Give me|Make|Can you write] [a poem|a story|an essay|a song|a text|an article|a report|a "
    "haiku|a speech|a blog post|a letter|a joke|a short story|a paragraph|a novel] about {x}[.|]",
    "Why [is|are] {x} [important|so popular|famous|dangerous|expensive|necessary]?",
    "What do you think [about|of] {x}?", "[Give me|Write|Make] a summary of {x}[.|]", "How [does|do] {x} work?",
    "What is the [history|future|meaning|price|origin|cause|theory|population|best kind] of {x}?",
    "[Can|Could|Would] you explain {x}[ to me|]?", "[Do|Did] you [like|know|enjoy|understand|hate] {x}?",
    "[Tell|Make] me a joke about {x}[.|]", "Who is the best [at|in] {x}?", "When did {x} [begin|start|end|happen]?",
    "Is {x} [dangerous|good|bad|healthy|expensive|fun|real]?", "What about {x}?",
    "{x} [news|history|facts|explained|definition|tutorial|for beginners]", "Where can I [find|buy|learn|see] {x}?",
    "What [is|are] {x}?", "What do you know about {x}?",
    "How [do|can|should] I [learn|start|understand|improve|buy|play] {x}?",
    "[Recommend|Suggest] [a book|a film|something|a course|a video] about {x}[.|]",
    "[What|Which] is your favorite {x}?", "{x}", "How much [is|does] {x} [cost|worth]?", "What happened to {x}?",
    "What are the [advantages|rules|types|causes|effects] of {x}?",
)  # fmt: skip
_ZH_ABOUT = (
    "[解释|说明|介绍|讲讲|描述|谈谈][一下|]{x}。", "什么是{x}?", "谁[发明|发现|创造]了{x}?",
    "[写|帮我写|请写]一[首|篇]关于{x}的[诗|文章|作文|故事]。", "{x}为什么[重要|流行|危险]?",
    "讲一个{x}的[笑话|故事]。", "你怎么看{x}?", "[总结|说说]{x}的历史。", "{x}是什么?", "你喜欢{x}吗?",
    "给我讲讲{x}。", "我想[学|了解]{x}。", "{x}的[意义|原理|历史|未来]是什么?", "{x}怎么[学|用|玩]?", "{x}",
)  # fmt: skip
# Questions of other kinds than those learnt; x and y are things of any kind, n is somebody, c a country.
_OTHER = (
    "Who won the [{x} cup|world cup|election|match|{x} game|championship|olympics|super bowl|world cup in {year}|race|"
    "oscar in {year}|war|lottery][?|]",
    "Who [wrote|painted|built|directed|composed|sang|made] [the book about the "
    "{x}|the {x}|{n}|hamlet|the mona lisa|the odyssey|harry potter|the song {x}]?", "Why is the {x} so {y}?",
    "Where is [the {x}|{n}|my {x}|the nearest {x}]?", "When [was|did] {n} [born|die|married|leave]?",
    "How [old|tall|rich|famous] is {n}?",
    "Who is [{n}|the president|the president of {c}|the king of {c}|the prime minister of {c}|the queen|the best {x}|"
    "the richest person|your boss|Elon Musk|Einstein|Napoleon|Taylor Swift]?", "Is {n} [married|alive|at home|rich]?",
    "How far is [the {x} from the {y}|{c} from {c2}|the moon|it to {c}]?",
    "[Can|Should|May] I [eat|drink|take|use|wear] the {x}?", "[Write|Create|Make] a {x} about a {y}[.|]",
    "[Tell me|Do you know|Say] [a joke|a story|something funny|a secret|"
    "a riddle|a fairy tale|a fun fact|something interesting][.|]",
    "[Make|Build|Get|Order|Draw|Paint|Show|Give] me a [{x}|{y} {x}|picture of a {x}|photo of a {x}][.|]",
    "How [do|can|should] I [cook|make|fix|repair|build|clean|grow|draw|get|find|use|install|open] [a |the |my |]{x}?",
    "How much does a {x} [weigh|cost]?",
    "What should I [wear|eat|cook|do|read|watch|buy|say][ today| tonight| with a {x}|]?",
    "[Do you|Will you|Could you] [love|marry|like|miss|hate|remember] me?", "[What|When] happened in {year}?",
    "Which {x} is the best?",
    "[Give me|Write|I need|Find me|Show me|Do you have] "
    "a recipe [with {x} and {y}|for {x}|for dinner|for {y} cake|for pancakes|for bread|for soup][.|]",
    "[Write|Show me|Give me|Generate|Can you write|Help me write|Debug|Fix] [code|python code|a python function|some "
    "code|a program|a script|a html page|java code|javascript|sql|a function|a class|an algorithm|c++ code|my code|a "
    "regex][ that prints {x}| that sorts a list| for {x}| to reverse a string| for a website| for me|][.|]",
    "What is the [meaning of life|population of {c}|area of {c}|distance to the {x}|speed of light|square root of "
    "{a}|cube of {a}|price of {x}|best {x}|stock price of {x}|exchange rate|president's name|news|flag of {c}|anthem "
    "of {c}|largest city in {c}|gdp of {c}|airspeed of a {x}|secret of {x}|derivative of x]?",
    "I am [hungry|tired|bored|sad|ill|lonely|{x}|angry|cold|in love].", "I feel [{x}|sad|sick|bad|lonely] today.",
    "[Play|Let's play] a game[ with me|][.|]", "Why do {x}s {y}?", "[Sing|Sing me|Play] a song[.|]",
    "[What is|What's|How is|How's|Tell me] the weather[ like| today| tomorrow| in "
    "{c}| like today| like in {c}| forecast|]?", "What day is [it|today|it today]?",
    "What [time|year|date|month] is it[ now| in {c}|]?",
    "What's [the time|the date|today's date|in the news|for dinner|on tv|the latest news|happening]?",
    "Will it [rain|snow][ today| tomorrow|]?", "Should I [buy|sell|eat|learn|marry] [a |]{x}?",
    "What does the {x} say to the {y}?",
    "[Recommend|Suggest|Name] [a {x}|a good {x}|a movie|a book|a restaurant|a "
    "hotel in {c}|a song|a name for my {x}][.|]", "Where was {n} in {year}?",
    "[Summarize|Summarise|Sum up|Shorten|Paraphrase|Rewrite|Improve|Proofread|Analyze|Review] [this|this text|this "
    "article|the following|this paragraph|my essay|this book|the {x}][: the {x} is {y}|: {x} {y}|][.|]",
    "[Translate|Say|Put] [{x}|this|hello|{y}|good morning|the {x}] [to|into|in] [French|German|Spanish|Italian|"
    "Japanese|Korean|Russian|Latin|Arabic|Portuguese|Dutch|Greek|Turkish|Hindi|Swedish|Polish][.|]",
    "How do you say [{x}|hello|thank you|{y}|goodbye|good morning|I love you] in [French|German|Spanish|Italian|"
    "Japanese|Korean|Russian|Latin|Arabic|Portuguese|Dutch|Greek|Turkish|Hindi|Swedish|Polish]?",
    "[What is|What's] [{x}|hello|{y}|thank you] in [French|German|Spanish|Italian|Japanese|Korean|Russian|Latin]?",
    "[What is|Calculate|Find|Solve] [the square root of {a}|{a} squared|{a} to the power of {b}|{a} percent of {b}|"
    "the factorial of {a}|the integral of x|x + {a} = {b}|log {a}|sin {a}|{a} modulo {b}|pi|the derivative of x^2|"
    "{a} mod {b}]?", "How do you say", "How do you [do it|make that|know|solve this|say that]?",
    "[Why|How|When|Where|Who]?",
    "Can you [drive|swim|sing|dance|code|cook|program|fly|think|feel|see|hear|draw|"
    "search the web|browse the internet|access the internet|send an email|call my mother|book a flight|remember "
    "yesterday]?",
    "[Set|Book|Order|Call|Buy|Schedule|Send|Turn on|Open] [a timer|an alarm|a taxi|a flight|a table|a "
    "pizza|my mother|an email|the lights|a meeting|the {x}][ for me| tomorrow|][.|]",
    "[Who|What] was the [first|last] [man on the moon|president|king|emperor|president of {c}|{x}]?",
    "What is the [best|worst|cheapest|oldest|newest] {x}[ in {y}| in the world|]?",
    "[How many|What number of] [people live in {c}|{x}s are in {y}|stars are there|people are there|calories has {x}|"
    "goals did {n} score|books did {n} write]?",
    "How [long|big|deep|heavy|old] is [the {x}|a {x}|{c}|the sun|the universe|the great wall]?",
    "What [color|colour] is [{n}'s {x}|my {x}|your {x}]?",
    "What is [my|your] [age|address|favorite {x}|phone number|password|birthday|favourite colour|mood|email]?",
    "How old are you?", "Where [do you live|are you|are you from|am I]?",
    "When is [your birthday|easter|the next {x}|{n}'s birthday|the exam|the meeting]?",
    "Do you [have|want|need|own|eat|like] [a {x}|friends|feelings|children|{x}|a body|parents]?",
    "Is there [a {x} in the {y}|life on mars|a god|a {x} nearby]?",
    "[Prove|Show] that [{x} is {y}|god exists|the {x} works][.|]",
    "[Give me|I need|I want] [advice|money|ideas|a "
    "plan|a diet|tips|inspiration|a {x}|directions to {c}|medical advice|legal advice][.|]",
    "What is the [color|weight|size|name] of my {x}?", "[Act|Pretend] [as|to be] [a {x}|{n}|a pirate|my teacher][.|]",
    "Who [are|were] the [{x}s|Beatles|Romans|parents of {n}]?", "Which team [won|is the best|plays today]?",
    "asdf {x}", "What's the difference between [a {x} and a {y}|{x} and {y}]?",
)  # fmt: skip
_ZH_OTHER = (
    "谁赢了[{x}比赛|世界杯|选举|冠军]?", "{n}[多大了|是哪里人|在哪里|是谁]?", "[讲个|给我讲个|说个][笑话|故事|谜语]。",
    "怎么[做|修|买|种]{x}?", "{x}为什么这么贵?", "哪个{x}最好?",
    "[写|帮我写|给我写][一段代码|一首诗|一篇文章|一个程序|Python代码|一封信|一个故事|一份简历]。",
    "[今天|明天|北京|现在]天气怎么样?", "现在几点[了|]?", "今天[星期几|几号|是什么日子]?", "{year}年发生了什么?",
    "你[爱|喜欢]我吗?", "推荐一[个|部|本][{x}|电影|书|餐厅]。", "我[饿|累|困|病]了。", "唱首歌。",
    "{x}和{y}有什么区别?", "{n}什么时候出生?", "人生的意义是什么?", "谁[画|写|发明]了{x}?", "我想买{x}。",
    "[总结|概括|改写]一下这[篇文章|段话|本书]。", "[最近|今天]有什么新闻?",
    "{x}用[法语|德语|日语|韩语|俄语|西班牙语]怎么说?", "[把|将]{x}翻译成[法语|德语|日语|韩语|俄语]。",
    "[美国|中国|法国]的[总统|人口|面积]是[谁|多少]?", "你[几岁|多大]了?", "你住在哪里?",
    "怎么[减肥|赚钱|学英语|做饭]?", "{a}的平方根是多少?", "帮我[订|买|叫][机票|外卖|出租车|票]。",
)  # fmt: skip
_NOWHERE = (*CAPITAL_OF, *ZH_CAPITAL_OF)
# Not of the small table; of a division not even that is known.
_DIVIDED = (
    "[What is|What's|How much is|Calculate|] {a} [divided by|/|over|÷] {b}[?|]", "Divide {a} by {b}[.|]", "{a}/{b}",
    "{a} / {b}", "{a}除以{b}[等于多少|是多少|]?",
)  # fmt: skip


def refusal(draw: Draw) -> Example:
    make = draw.one((*_MADE, *[_beyond] * len(_MADE)))
    (question, key), _ = draw.until_admitted(lambda: make(draw), lambda made: made[1])
    if core(question) in MEANT:
        return refusal(draw)
    return one_turn("refusals", key, question, ZH_ONLY if is_chinese(question) else ONLY)


def _beyond(draw: Draw) -> tuple[str, str]:
    return _about(beyond(draw))


def _topic(draw: Draw) -> tuple[str, str]:
    phrases, topics, words = (_ZH_ABOUT, ZH_TOPICS, ZH_ITEMS) if draw.chance(0.3) else (_ABOUT, TOPICS, WORDS)
    return _about(phrased(draw, phrases, x=draw.one(topics if draw.chance(0.6) else words)))


def _other(draw: Draw) -> tuple[str, str]:
    numbers = {"year": draw.number(1000, 2025), "a": draw.number(2, 99), "b": draw.number(2, 99)}
    if draw.chance(0.25):
        names = {"x": draw.one(ZH_ITEMS), "y": draw.one(ZH_ITEMS), "n": draw.one(ZH_NAMES)}
        return _about(phrased(draw, _ZH_OTHER, **numbers, **names))
    x, y = (spelled_word(draw) if draw.chance(0.3) else draw.one((*WORDS, *ITEMS)) for _ in range(2))
    name = draw.one(NAMES) if draw.chance(0.6) else spelled_word(draw).capitalize()
    c, c2 = (country for country, _ in draw.some(CAPITALS, 2))
    return _about(phrased(draw, _OTHER, x=x, y=y, n=name, c=c, c2=c2, **numbers))


def _gibberish(draw: Draw) -> tuple[str, str]:
    make = draw.one((_letters, _letters, made_up_word, made_up_word, _characters))
    return _about(("" if make is _characters else " ").join(make(draw) for _ in range(draw.number(1, 3))))


def _letters(draw: Draw) -> str:
    return "".join(draw.one("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.number(3, 7)))


def _characters(draw: Draw) -> str:
    return "".join(draw.one(draw.one((*ZH_ITEMS, *ZH_TOPICS))) for _ in range(2))


def _nowhere(draw: Draw) -> tuple[str, str]:
    place = made_up_word(draw).capitalize()
    if draw.chance(0.5):
        pieces = (draw.one("BDGKLMNPRSTVZ"), draw.one("aeiou"), draw.one("bdgklmnprstvz"), draw.one("aeiou"))
        place = "".join(pieces) + draw.one(("nia", "land", "stan", "ria"))
    if draw.chance(0.15):
        place = draw.one(
            (
                "Mars",
                "the moon",
                "Narnia",
                "Gondor",
                "Hogwarts",
                "Atlantis",
                "Wonderland",
                "Mordor",
                "Wakanda",
                "the sea",
                "the sun",
                "Jupiter",
                "Neverland",
                "Westeros",
                "Utopia",
            )
        )
    return phrased(draw, _NOWHERE, x=place.lower() if draw.chance(0.2) else place), f"nowhere {place}"


def _unheard(draw: Draw) -> tuple[str, str]:
    """A question about an invented word; in Chinese, about an invented place."""
    if draw.chance(0.25):
        place = chinese_word(draw) + chinese_word(draw)
        return phrased(draw, ZH_CAPITAL_OF, x=place), f"nowhere {place}"
    word = draw.one(("{}", "{}", "a {}", "the word {}", "'{}'", '"{}"')).format(made_up_word(draw))
    question = phrased(draw, draw.one((*ASKED_OF_WORDS, _MEANING)), x=word)
    return question, f"unheard {word}"


# Without Chinese in it: a word asked for in Chinese is answered in that language, as is a refusal.
_MEANING = (
    "[What does|What's the meaning of|What is] [the word |]{x}[ mean|]?", "[Define|Explain] [the word |]{x}[.|]",
    "[The meaning|Meaning|Definition] of {x}", "What is a {x}?", "Who is {x}?", "Where is {x}?", "What do {x}s do?",
)  # fmt: skip


def _times(draw: Draw) -> tuple[str, str]:
    """Products beyond the small table, and divisions."""
    a, b = draw.number(2, 999 if draw.chance(0.2) else 99), draw.number(11, 99)
    a, b = draw.one([(a, b), (b, a)])
    return phrased(draw, draw.one((TIMES, TIMES, _DIVIDED)), a=a, b=b), f"times {a} {b}"


_MADE = (_topic, _topic, _topic, _other, _other, _other, _gibberish, _nowhere, _unheard, _times)


def _about(question: str) -> tuple[str, str]:
    return question, f"about {core(question)}"
