"""Greetings and small talk: what people say first, in between and last, and who it is that answers.

They are learnt by heart, so the phrasing is what is held out; the plainest ways are always learnt.
"""

from dataclasses import dataclass

from ..example import Draw, Example, one_turn
from ..grammar import every_phrase, expanded, mistyped
from ..wording import core, loosened

WHO = "I am pocket, a tiny language model that comes with Penstock."
ZH_WHO = "我是pocket,Penstock自带的一个很小的语言模型。"
ABLE = "I can do small sums, compare, sort and count, copy and reverse words, name capitals, write JSON and call tools."
ZH_ABLE = "我会做简单的加减法、比较、排序、数数、抄写和倒写,知道一些首都,会写JSON,也会调用工具。"


@dataclass(frozen=True)
class Small:
    """Phrases of one meaning, and the answer; the plainest phrases are never held out."""

    plain: tuple[str, ...]
    said: tuple[str, ...]
    answer: str


_YOU = "[ pocket| there| again| friend| everyone| you| my friend| little model| buddy| robot|, pocket| to you|]"
_HI = "[Hello|Hi|Hey|Hello there|Hi there|Hey there|Hi pocket|Hello pocket|Good morning|Good evening|Ok|So]"
SAID = (
    Small(("Hello", "Hi", "Hey"), ("[Hello|Hi|Hey|Hiya|Greetings|Good day|Howdy|Heya|Yo|Hi hi|Hello hello|Hey hey|"
    f"Hullo|Hallo|Hi there|Hey there|Hello there|Ahoy]{_YOU}",
    "[Nice|Good|Pleased|Great|Happy] to [meet|see] you[ pocket| too|]",
        "[Hi|Hello|Hey], [nice to meet you|good to see you|how nice|pocket here|I am here|it's me|anyone there|are "
        "you there]", "Anybody [there|home]?", "Are you there?",
        "[Just saying|I just want to say|I wanted to say] [hi|hello]", "Knock knock"), "Hello! How can I help you?"),
    Small(("你好", "您好", "嗨"), (
    "[你好|您好|嗨|哈喽|你好啊|你好呀|喂|大家好|嘿|哈罗][,pocket|pocket|,朋友|,你好|啊|]", "pocket[你好|,你好|您好]",
    "[很高兴认识你|幸会|见到你很高兴|在吗|有人吗]"), "你好!我能帮你什么?"),
    Small(("Good morning", "Good evening", "Good afternoon"), ("[Good morning|Morning|Good afternoon|Good evening|"
    f"Evening|Afternoon|A good morning|A very good morning|Top of the morning]{_YOU}",
    "[Hi|Hello|Hey], good [morning|evening|afternoon]"), "A good day to you! How can I help you?"),
    Small(("早上好", "早安", "晚上好"), (
    "[大家|pocket|][早上好|早安|早|下午好|晚上好|早啊|中午好|上午好][啊|呀|,pocket|,朋友|]",),
    "你好!今天我能帮你什么?"),
    Small(("How are you?", "How are you doing?", "How is it going?", "Hello! How are you?", "Hi, how are you?"), (
    f"[{_HI}[,|!|] |]how [are you|are you doing|is it going|are things|are you feeling|do you do|are you "
    "today|are you doing today|is your day|is your day going|is life|have you been|goes it|do you feel|do you feel "
    "today|is everything|was your day][ pocket| my friend|]?",
    f"[{_HI}, |]how's [it going|everything|life|your day][ pocket|]?",
        f"[{_HI}, |][what's up|whats up|what's new|are you well|are you ok|are you okay|are you fine|you ok|you good|"
        "everything ok|everything alright|all good|how do you feel|feeling good|are you happy|did you sleep well|"
        "sup|you alright|are you good]?"), "I am fine, thank you. How can I help you?"),
    Small(("你好吗?", "你怎么样?", "最近好吗?"), (
    "[你好,|嗨,|pocket,|][你|][最近|今天|现在|][好吗|怎么样|还好吗|过得怎么样|过得好吗|心情怎么样|身体好吗]?",),
    "我很好,谢谢。我能帮你什么?"),
    Small(("Who are you?", "What are you?", "What is your name?"), (f"[{_HI}[,|!] |][who are you|what are you|what "
    "is your name|what's your name|who is this|who am I talking to|what should I call you|are you a robot|are you an "
    "AI|are you human|are you a person|who made you|are you ChatGPT|are you a language model|which model are you|"
    "what model are you|do you have a name]?",
        f"[{_HI}, |][tell me|please tell me|can you tell me|could you tell me|say|I want to know] [who you are|your "
        "name|about yourself|what you are|who made you|something about yourself][.|]",
        "[Introduce|Describe|Explain] yourself[ briefly| to me|][.|]",
        "[Your name|Name|Identity|And you are|And who are you|So who are you|Are you pocket|What is pocket|Who is "
        "pocket|Are you a [machine|bot|computer|chatbot|program|model|human being|real person|big model]|What kind "
        "of [model|AI|bot|thing|program] are you|Who [created|built|trained|wrote|developed|programmed] you|Where do "
        "you come from|What do they call you|What can I call you|May I know your name|Who do I speak to|Am I talking "
        "to a [human|robot|machine|person]|What's pocket|Are you [GPT|Claude|Qwen|Siri|"
        "Alexa]|Are you real|Are you alive|What's your [name|model]|Do you have a name]?",
        "Are you a [person|human|woman|man|somebody] or a [machine|program|bot|computer]?",
        "Are you [a bot|human|a machine|real] or [not|what]?"), WHO),
    Small(("你是谁?", "你叫什么名字?", "你叫什么?"), (
    "[你好,|嗨,|请问,|]你[是谁|叫什么名字|叫什么|是什么|是什么模型|是机器人吗|是人吗|是pocket吗|的名字是什么|是真人吗|"
    "是人工智能吗|是AI吗|是ChatGPT吗|是谁做的|是谁开发的|从哪里来]?",
    "[介绍一下|请介绍|告诉我]你[自己|是谁|][。|]", "[请|]自我介绍[一下|]。", "谁[创造|开发|训练|制造]了你?"), ZH_WHO),
    Small(("What can you do?", "Help", "How can you help me?"), (f"[{_HI}, |][what can you do|what do you know|how "
    "can you help me|what are you able to do|what can I ask you|what are you good at|can you help me|what else can "
    "you do|what are your skills|what can you help with|what can you help me with]?",
    f"[{_HI}, |][help me|I need help|I need some help|tell me what you can do|show me what you can do|please help|"
    "help please]",
        "[What can I do [here|with you]|What should I ask|What are your [abilities|capabilities|skills|functions|"
        "features|talents]|How do you work|What do you do|What is your [purpose|job|function|use]|What are you for|"
        "What things [can you do|do you know]|What kind of [questions|things] can [I ask|you answer|you do]|What "
        "questions can you answer|Which [tasks|things] can you do|How can I use you|Can you do anything|What is it "
        "you do|What are you capable of|Could you help me|What topics do you know|Why are you here|What do you "
        "offer]?", "[List|Show|Explain|Describe|Tell me] your [abilities|skills|capabilities|functions][.|]"), ABLE),
    Small(("你会什么?", "你能做什么?", "你能帮我什么?"), (
    "[你好,|嗨,|请问,|]你[会什么|能做什么|会做什么|能帮我什么|有什么功能|可以做什么|都会什么|能干什么|能干嘛|有什么用|"
    "有什么本领|知道什么|懂什么]?",
    "[帮帮我|帮助|救命|我需要帮助|我该问什么|我能问你什么?]", "[能|可以]帮[我|帮我]吗?"), ZH_ABLE),
    Small(("Thank you", "Thanks", "Thx"), ("[Ok, |Great, |Perfect, |Cool, |Good, |Nice, |Wow, |Super, |][thank you|"
    "thanks|thx|many thanks|thank you so much|thank you very much|thanks a lot|ty|thanks so much|thank you kindly|"
    "thanks a million|thanks a bunch|thanks a ton|thanks mate|thanks buddy|much appreciated|thanks for [your help|"
    "that|the help|helping|everything|the answer]|thank you "
    "for [your help|that|everything|helping me]|I appreciate it|I appreciate that|cheers|cheers mate|that was helpful|"
    "that "
    "helps][ pocket| friend| my friend| buddy|]", "[Great|Ok|Perfect|Nice], [thank you|thanks|thx]",
    "[Ok |Great, |Well, |][thanks|thank you|thx|thank you very much|many thanks|thanks a lot], [that was [great|good|"
    "useful|nice|perfect|what I needed|quick|right]|you are [nice|great|the best|good|helpful|so kind]|I [like it|am "
    "happy|am glad|needed that]|this [helps|works|is good]|it works|it helped me]",
    "[That's|That is] [very kind|kind of you|nice of you|helpful|very helpful]",
    "You [helped me a lot|are very kind|are a great help|have been very helpful]"), "You are welcome!"),
    Small(("谢谢", "谢谢你", "多谢"), ("[好的,|好,|太好了,|不错,|][谢谢|谢谢你|多谢|非常感谢|谢谢您|谢了|十分感谢|"
    "感谢|太感谢了|谢谢你的帮助][啊|pocket|,pocket|]",
    "[麻烦你了|辛苦了|帮了大忙]"), "不客气!"),
    Small(("Bye", "Goodbye", "See you"), ("[Ok, |Thanks, |Well, |Alright, |][bye|goodbye|good bye|see you|good night|"
    "see you later|bye bye|cya|I have to go|have a nice day|farewell|see ya|take care|talk to you later|until next "
    "time|see you tomorrow|see you soon|have a good [one|day|night|evening|weekend]|I am leaving|I'm leaving now|I "
    "must go|I need to go|gotta go|catch you later|later|so long|ttyl|sleep well|I'm off|sweet dreams|good night and "
    "sleep well|I'm tired, good night|have a good night|it's late, bye|time for bed|I go to bed|that's all for today|"
    "I'm done][ pocket| then| my friend| now|]",), "Goodbye!"),
    Small(("再见", "拜拜", "晚安"), ("[好的,|好,|谢谢,|那就|][再见|拜拜|晚安|回头见|明天见|下次见|我走了|我要走了|"
    "回见|先这样|改天见|后会有期][啦|pocket|,pocket|了|]",),
    "再见!"),
    Small(("Ok", "Yes", "No"), ("[Ok|Yes|No|Okay|Yeah|Sure|Fine|All right|Good|Great|Nice|Cool|I see|Well done|Very "
    "good|Right|Correct|Nope|Never mind|Hmm|Wow|Lol|Haha|Oh|Got it|Good job|Oh well|Very well|K|Yep|Alright|Awesome|"
    "Amazing|Excellent|Perfect|Interesting|Understood|Makes sense|Good to know|That's right|That's correct|That's "
    "good|That's great|That is nice|That's funny|Not bad|Impressive|Brilliant|Super|Wonderful|Exactly|Indeed|True|"
    "Maybe|No problem|You are right|Sounds good|Fantastic|Hooray|Yay|Ah|Aha|Uh|Um|Well|You are funny|You are smart|"
    "You are great|Good bot|Nice work|Good answer|Great answer][ then| pocket|, good|, great|, fine|]",
    "[Oh|Ok|Yes|No|Ah|Well|Wow], [great|good|fine|nice|cool|ok|right|I see|very good|well done|sure|that's right]"),
          "All right! What else can I do for you?"),
    Small(("好", "好的", "是的"), (
    "[嗯,|哦,|好,|][好|好的|不|是的|对|是|行|可以|不是|嗯|哈哈|很好|不错|知道了|明白了|好吧|没事|哦|懂了|没问题|"
    "太好了|真棒|厉害|有意思|当然|没错|对的|原来如此|你真聪明][啊|吧|,很好|]",),
          "好的!还有什么我能帮你?"),
)  # fmt: skip
# A row comes oftener the more ways it has and the earlier it stands; often it is one of the plainest.
_WEIGHTS = [(1 + sum(map(len, small.said)) / 60) ** 0.5 / place**0.2 for place, small in enumerate(SAID, 1)]
_PLAIN_SHARE = 0.35
# Hardly anybody types such things with care.
_LOOSE_SHARE = 0.7
_PLAIN = frozenset(core(phrase) for small in SAID for phrase in small.plain)
# All that is one of these, however it is typed.
MEANT = _PLAIN | {core(phrase) for small in SAID for way in small.said for phrase in every_phrase(way)}


def greeting(draw: Draw) -> Example:
    def make() -> tuple[str, Small]:
        small = draw.random.choices(SAID, _WEIGHTS)[0]
        return _uncommon(draw, small), small

    if not draw.held_out and draw.chance(_PLAIN_SHARE):
        small = draw.random.choices(SAID, _WEIGHTS)[0]
        phrase = draw.one(small.plain)
        return one_turn("greetings", f"plain {core(phrase)}", _typed(draw, phrase), small.answer)
    (phrase, small), key = draw.until_admitted(make, lambda made: f"phrase {core(made[0])}")
    return one_turn("greetings", key, _typed(draw, mistyped(draw, phrase)), small.answer)


def _uncommon(draw: Draw, small: Small) -> str:
    """One of the ways that are not the plainest."""
    while True:
        phrase = expanded(draw, draw.one(small.said))
        if core(phrase) not in _PLAIN:
            return phrase[0].upper() + phrase[1:]


def _typed(draw: Draw, phrase: str) -> str:
    """People put a full stop or an exclamation mark behind such things, or nothing."""
    said = loosened(draw, phrase, _LOOSE_SHARE)
    if not said[-1].isalpha() or draw.chance(0.6):
        return said
    return said + draw.one(("!", ".") if said.isascii() else ("!", "！", "。"))
