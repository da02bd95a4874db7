"""Tools as programs really offer them, each with many names, its parameters too, and the ways people ask for it.

A row's name, its parameters' names and its wording are drawn anew each time, so that no tool is known by its name: what
is called is read off what is offered.
"""

from dataclasses import dataclass

# Slot of a request: the names that its parameter may have, its type, and the kind of value (`values.py`).
Slot = tuple[str, str, str]


@dataclass(frozen=True)
class Service:
    names: str  # a grammar; words joined by underscores
    description: str
    slots: dict[str, Slot]
    requests: tuple[str, ...]


_CITY: Slot = ("[city|location|place|town|city_name]", "string", "city")
_PERSON: Slot = ("[name|person|recipient|to|contact|user|who]", "string", "name")
_ITEM: Slot = ("[item|product|thing|name|product_name|article]", "string", "item")
_COUNT: Slot = ("[count|quantity|amount|number|how_many]", "integer", "count")
_TEXT: Slot = ("[text|message|content|body]", "string", "text")
_ROOM: Slot = ("[room|location|where|area]", "string", "room")
_DAY: Slot = ("[day|date|when|weekday]", "string", "day")

SERVICES = (
    Service("[get|fetch|find|read|current]_weather[_in_city|_report|]",
    "[Get|Returns|Looks up] the [current |]weather [in|of|for] a city", {"c": _CITY},
            ("[What's|What is|How is|How's|Tell me] the weather [like |]in {c}[ today| now|][?|]",
            "[Weather|Forecast] [in|for] {c}[?|]",
            "[Is it|Will it be] [raining|sunny|cold|warm|snowing] in {c}[ today|]?", "{c}[今天|]天气[怎么样|如何|]?",
            "Do I need an umbrella in {c}?")),
    Service("[get|fetch|look_up|current]_[time|local_time|clock]",
    "[Get|Tells] the [current|local] time [in a city|of a place]", {"c": _CITY},
            ("[What time is it|What's the time|Current time|Time|What is the local time] in {c}[ now|]?",
            "[Tell me|I need] the time in {c}[.|]", "{c}现在几点[了|]?")),
    Service("[get|fetch|look_up]_population", "[Returns|Get] the population of a [city|country]", {"c": _CITY}, (
    "[How many people live in|What is the population of|How big is the population of] {c}?", "Population of {c}",
    "{c}有多少人口?")),
    Service("[set|start|create|add]_[timer|countdown]", "[Start|Set] a timer", {"n": (
    "[minutes|duration|length|time_in_minutes]", "integer", "count")},
            ("[Set|Start|Create|I need] a timer for {n} minutes[.|]", "[Timer|Countdown] [for|of] {n} minutes",
            "[Set|Start] a {n}[ |-]minute timer[.|]", "Wake me in {n} minutes[.|]", "Remind me in {n} minutes[.|]",
            "{n}分钟后提醒我。", "设[一个|]{n}分钟的定时器。")),
    Service("[set|create|add]_alarm", "Set an alarm clock", {"n": ("[hour|time|at]", "integer", "hour")}, (
    "[Set|Create] an alarm for {n}[ o'clock|][.|]", "Wake me [up |]at {n}[ o'clock|][.|]", "Alarm at {n}",
    "{n}点叫我起床。")),
    Service("[set|create|add|new]_[alarm|wake_up|reminder]", "Set an alarm [clock|]", {"t": ("[time|at|when|clock]",
    "string", "clock")}, ("[Set|Create|I need] an alarm [for|at] {t}[.|]", "Wake me [up |]at {t}[.|]", "Alarm at {t}",
    "[Ring|Remind me] at {t}[.|]", "{t}叫[我起床|醒我]。", "设{t}的闹钟。")),
    Service("[calculate|evaluate|compute|calculator|math|solve][_expression|]",
    "[Evaluates|Computes|Calculate] [an expression|a sum|arithmetic]", {"e": ("[expression|formula|input|term|sum]",
    "string", "expression")}, ("[What is|What's|Calculate|Compute|Evaluate|Solve|] {e}[?|]",
    "[Use the tool|Use the calculator|Calculator]: {e}", "[How much is|Work out|Find] {e}[ with the tool|][?|.|]",
    "[计算|算一下]{e}。")),
    Service("[get|current|read|check]_[temperature|degrees|heat]",
    "[Current temperature|The temperature] [in|of] a city", {"c": _CITY, "u": ("[unit|scale|units|in]", "string",
    "scale")}, ("How [warm|cold|hot] is it in {c}[, | ]in {u}?",
    "[Temperature|The temperature] in {c} in {u}[ please|]",
    "[What is|What's|Tell me] the temperature in {c} in [degrees |]{u}[?|]", "How [warm|cold|hot] is {c}? In {u}[.|]")),
    Service("[get|find|look_up|show|check]_[order|invoice|ticket|booking][_status|]",
    "[Shows|Get] [the status of |]an [order|invoice] by its number", {"n": ("[order_id|id|number|order|reference]",
    "integer", "id")}, ("[Where is|What about|Show me|Check|Find] [my |the |][order|invoice|ticket|booking] "
    "[number |][no. |]{n}[?|]", "[My|The] [order id|number|order number] is {n}, where is it?",
    "[What is the status|Status] of [order|invoice|ticket|booking|number] {n}[?|]", "订单{n}到哪了?",
    "查[一下|]订单{n}。")),
    Service("[water|feed|clean|wash|heat|cool|dry]_[it|plants|things|garden|start]",
    "[Water|Heat|Clean] something for some minutes", {"i": _ITEM, "n": ("[minutes|duration|time|for_minutes]",
    "integer", "count")}, ("[Water|Heat|Clean|Wash|Cool|Dry] the {i} for {n} minutes[.|]",
    "[Give|Let] the {i} {n} minutes[.|]", "{n} minutes for the {i}[.|]")),
    Service("[draw|set|put|place|move][_pixel|_point|_piece|_to|]", "[Draw|Place] a point at a position", {"x":
    ("[x|column|left]", "integer", "count"), "y": ("[y|row|top]", "integer", "count"), "c": ("[color|colour]", "string",
    "color")}, ("[Draw|Put|Place|Set] a {c} [point|pixel|dot] at {x}, {y}[.|]",
    "[Draw|Put|Place|Set|Make] the [point|pixel|dot] at x {x}[ and|,] y {y} {c}[.|]",
    "At {x}, {y} [draw|put] a {c} [dot|pixel|point][.|]", "{c} at {x}, {y}[.|]")),
    Service("[start|run|launch|begin]_[machine|washer|program|oven|robot|engine]",
    "[Start|Run] a machine with a program", {"p": ("[program|mode|setting|name]", "string", "word"), "o":
    ("[drying|camera|silent|eco|light|fast]", "boolean", "on")}, (
    "[Start|Run|Launch] [it|the machine] with [the program|the mode|program|mode] {p}, {o_name} "
    "[is|should be|=] {o}[.|]",
    "[Program|Mode] {p}, {o_name} {o}", "[Start|Run|Launch] {p} with {o_name} [set to |]{o}[.|]")),
    Service("[multiply|get_product|times]", "[Multiply|Product of] two numbers", {"a": ("[a|x|first|left]", "integer",
    "count"), "b": ("[b|y|second|right]", "integer", "count")},
            ("[What is|What's|Calculate|] {a} [times|multiplied by|*|x] {b}[?|]", "Multiply {a} [by|and|with] {b}[.|]",
            "{a}[乘以|乘]{b}[等于多少|是多少][?|]")),
    Service("[add|sum|add_numbers|plus]", "Add two numbers", {"a": ("[a|x|first|left]", "integer", "count"), "b": (
    "[b|y|second|right]", "integer", "count")}, ("[Use the tool to |Please |]add {a} [and|to] {b}[.|]",
    "Use the [tool|calculator] for {a} + {b}[.|]", "Call the tool with {a} and {b}[.|]")),
    Service("[divide|get_quotient]", "Divide one number by another", {"a": ("[a|x|dividend]", "integer", "count"), "b":
    ("[b|y|divisor]", "integer", "count")}, ("[What is|Calculate|] {a} [divided by|/] {b}[?|]",
    "Divide {a} by {b}[.|]", "{a}除以{b}[等于多少|是多少]?")),
    Service("[square_root|sqrt|get_root]", "Square root of a number", {"a": ("[n|x|number|value]", "integer", "count")},
    ("[What is|What's|Find|Calculate|] the square root of {a}[?|]", "Root of {a}")),
    Service("[send|write|post]_[message|text|sms|chat_message]", "Send a [text|message] to [a person|someone]", {"p":
    _PERSON, "t": _TEXT},
            ("[Send|Write] {p} [the message|a message saying|the text]: {t}", "[Tell|Text|Message] {p}: {t}",
            "[Tell|Text|Message] {p} {t}", "[Send|Text] \"{t}\" to {p}[.|]", "Text {p} that {t}", "Let {p} know: {t}",
            "Send a message to {p}: {t}", "[Send|Write] {t} to {p}[.|]", "[给|向]{p}发[消息|短信]:{t}", "告诉{p}:{t}")),
    Service("[send|write|compose]_[email|mail]", "Send an email", {"p": _PERSON, "s": ("[subject|title|topic]",
    "string", "text")}, ("[Send|Write] [an email|a mail|an e-mail] to {p} [about|with the subject|titled] {s}[.|]",
    "[Email|Mail] {p} about {s}[.|]", "给{p}发邮件,主题是{s}。")),
    Service("[call|phone|dial|ring][_person|_contact|]", "[Call|Phone] [a person|somebody]", {"p": _PERSON}, (
    "[Call|Phone|Ring|Dial] {p}[ now| please|][.|]", "[I want to|I need to] [call|talk to|speak to] {p}[.|]",
    "[给{p}打电话|打电话给{p}]。")),
    Service("[get|check|find|look_up]_price", "[Get|Returns] the price of [a product|an item]", {"i": _ITEM}, (
    "[How much is|What does|How much does] the {i}[ cost|]?", "[What is the|The|] price of [the |a |]{i}[?|]",
    "What's the price of [a |the |]{i}?", "{i}多少钱?", "查一下{i}的价格。")),
    Service("[play|start]_[music|song|artist|playlist]", "Play [music|songs] by an artist", {"a": (
    "[artist|singer|band|performer|musician]", "string", "artist")}, (
    "[Play|Put on|Start] [something|music|a song|songs] by {a}[.|]", "[I want to hear|Let me hear|Play] {a}[.|]",
    "播放{a}的歌。")),
    Service("[add|put|create|append]_[to_list|shopping_item|item|to_cart|todo]",
    "[Add|Put] an item [to the shopping list|on the list|to the cart]", {"i": _ITEM, "n": _COUNT}, (
    "[Add|Put] {n} {i} [to|on] [my|the] [list|shopping list|cart|basket][.|]", "I need {n} {i} on [my|the] list[.|]",
    "[Buy|Order] {n} {i}[.|]", "买{n}个{i}。", "把{n}个{i}加到购物车。")),
    Service("[order|buy|purchase]_[product|item|goods|food]", "Order something", {"i": _ITEM, "n": _COUNT}, (
    "[Order|Buy|Get me|I want|I'd like|Purchase] {n} {i}[ please|][.|]", "[Place an order|Order] for {n} {i}[.|]",
    "[订|买]{n}个{i}。")),
    Service("[order|get]_[food|pizza|meal]", "Order food", {"f": ("[food|dish|meal|what]", "string", "food"), "n":
    _COUNT},
            ("[Order|I want|Get me|I'd like] {n} {f}[.|]", "{n} {f}, please", "[Order|Get] {f} for {n}[ people|][.|]")),
    Service("[book|reserve|make]_[table|restaurant|reservation|dinner]", "[Book|Reserve] a table [in|at] a restaurant",
    {"n": ("[people|guests|seats|party_size|persons]", "integer", "count"), "r": ("[restaurant|place|where|venue]",
    "string", "place")},
            ("[Book|Reserve|Get] a table for {n} at {r}[.|]", "[Reserve|Book] {r} for {n} people[.|]",
            "A table for {n} [people |]at {r}[, please|]", "I want to eat at {r} with {n} people[.|]",
            "在{r}订{n}个人的位子。")),
    Service("[book|reserve|find]_[flight|train|trip|ticket]", "[Book|Find] a [flight|train|trip]", {"a": (
    "[from|origin|from_city|start|departure]", "string", "city"), "b": ("[to|destination|to_city|arrival|end]",
    "string", "city2")},
            ("[Book|Find|I need|Get me|Search] a [flight|train|trip|ticket] from {a} to {b}[.|]",
            "[Fly me|I want to go|I want to travel|Take me|I am going] from {a} to {b}[.|]",
            "[Ticket|Flight|Train] from {a} to {b}", "How do I get from {a} to {b}?",
            "I need to [go|get] to {b} from {a}[.|]", "[订|买]一张从{a}到{b}的票。", "从{a}到{b}怎么走?")),
    Service("[book|reserve|find]_[hotel|room]", "[Book|Find] a hotel", {"c": _CITY, "n": (
    "[nights|days|stay|length_of_stay]", "integer", "count")}, (
    "[Book|Find|I need|Reserve] a [hotel|room] in {c} for {n} nights[.|]", "[Hotel|Room] in {c}, {n} nights",
    "I [stay|am staying] in {c} for {n} nights[, find a hotel|][.|]", "订{c}的酒店,住{n}晚。")),
    Service("[get|calculate|find|measure]_distance", "Distance between two [cities|places]", {"a": (
    "[from|start|origin|a|city1]", "string", "city"), "b": ("[to|end|destination|b|city2]", "string", "city2")}, (
    "How far is [it from |]{a} [to|from] {b}?", "[Distance|The distance] [from {a} to {b}|between {a} and {b}]",
    "What is the distance [from {a} to {b}|between {a} and {b}]?", "{a}到{b}有多远?")),
    Service("[turn|switch|set]_[light|lights|lamp|device]", "[Turn|Switch] [the lights|a lamp] on or off", {"r": _ROOM,
    "o": ("[on|enabled|state|is_on]", "boolean", "on")}, ("[Turn|Switch] {o} the [light|lights|lamp] in the {r}[.|]",
    "[Turn|Switch] the {r} [light|lights|lamp] {o}[.|]", "[Light|Lights] {o} in the {r}[.|]")),
    Service("[set|change|adjust]_[volume|sound|loudness]", "Set the volume", {"n": ("[level|volume|value|percent]",
    "integer", "count")}, ("[Set|Change|Turn|Put] the [volume|sound] to {n}[.|]", "Volume {n}",
    "[Make it|I want the volume at] {n}[.|]", "音量[调到|设为]{n}。")),
    Service("[set|change|adjust]_[temperature|heating|thermostat]", "Set the temperature of a room", {"n": (
    "[degrees|temperature|value|celsius]", "number", "degrees"), "r": _ROOM}, (
    "[Set|Change|Heat] the {r} to {n} degrees[.|]", "[Set|Make] the temperature in the {r} {n}[ degrees|][.|]",
    "I want {n} degrees in the {r}[.|]")),
    Service("[open|close|lock|unlock]_[door|window|gate|garage]", "[Open|Close|Lock] [a door|a window]", {"r": _ROOM},
    ("[Open|Close|Lock|Unlock] the {r}[ door| window|][.|]", "[Open|Close|Lock] [it|the door] in the {r}[.|]")),
    Service("[convert|change|exchange]_[currency|money]", "Convert an amount of money", {"n": (
    "[amount|value|sum|money]", "number", "degrees"), "a": ("[from|source|from_currency|have]", "string", "currency"),
    "b": ("[to|target|to_currency|want]", "string", "currency2")}, (
    "[Convert|Change|Exchange] {n} {a} [to|into] {b}[.|]", "[How much is|What is|How many {b} are] {n} {a} in {b}?",
    "{n} {a} [in|to] {b}", "{n}{a}是多少{b}?")),
    Service("[convert]_[units|length|unit]", "Convert a length", {"n": ("[value|amount|length|number]", "number",
    "degrees"), "a": ("[from_unit|unit|source]", "string", "unit"), "b": ("[to_unit|target|into]", "string", "unit2")},
    ("[Convert|Change] {n} {a} [to|into] {b}[.|]", "How many {b} are {n} {a}?", "{n} {a} in {b}")),
    Service("[translate|translate_text|get_translation]", "Translate a text [into another language|to a language]", {
    "t": _TEXT, "l": ("[language|to|target|target_language]", "string", "language")}, (
    "Translate {t} [to|into] {l}[.|]", "[How do you say|Say] {t} in {l}[?|]", "[What is|] {t} in {l}[?|]",
    "把{t}翻译成{l}。")),
    Service("[search|look_up|find|google][_web|_the_web|_internet|_online|]", "Search the [web|internet]", {"q": (
    "[query|q|question|terms|keywords|search_term]", "string", "query")}, (
    "[Search|Google|Look up|Find|Search for|Search the web for|Look for] {q}[.|]",
    "[Find|Get] [information|something] [about|on] {q}[.|]", "[搜索|查一下|搜一下]{q}")),
    Service("[search|find|get]_[recipe|recipes|dish]", "Find a recipe", {"f": ("[food|dish|ingredient|meal]", "string",
    "food")}, ("[Find|Give me|I need|Search] a recipe [for|with] {f}[.|]", "How do I [cook|make|prepare] {f}?",
    "Recipe for {f}")),
    Service("[get|check|fetch|look_up]_[stock|stock_price|share_price|quote]",
    "[Get|Returns] the [stock price|share price] of a company", {"s": ("[symbol|ticker|company|stock]", "string",
    "ticker")}, ("[What is|What's|Get|Check|Tell me] the [stock |share |]price of {s}[?|]",
    "[How is|How's] {s} [doing|trading][ today|]?", "{s} [stock|share price|quote]", "查一下{s}的股价。")),
    Service("[get|read|fetch|latest]_[news|headlines]", "[Get|Latest] news [about|on] a topic", {"t": (
    "[topic|subject|about|category]", "string", "topic")}, (
    "[What's|What is|Any|Get me|Show me|] [the |]news [about|on] {t}[?|]",
    "[Latest|Recent] [news|headlines] [about|on] {t}", "[关于{t}的新闻|{t}有什么新闻]?")),
    Service("[create|add|schedule|make]_[event|meeting|appointment|reminder]", "[Create|Add] a calendar event", {"t":
    ("[title|name|what|subject]", "string", "text"), "d": _DAY}, (
    "[Schedule|Add|Create|Put] [a meeting|an event|an appointment] [called |named |titled |]{t} [on|for] {d}[.|]",
    "[Remind me of|Put] {t} on {d}[.|]", "I have {t} on {d}, [add it|note it][.|]")),
    Service("[get|show|check|list]_[calendar|events|schedule|appointments]", "[Shows|List] the events of a day", {"d":
    _DAY}, ("[What is|What's|Show me] [on my calendar|my schedule|on my schedule] [on|for] {d}[?|]",
    "[Do I have|Are there] [anything|meetings|appointments] on {d}?", "[My events|Events|Calendar] [on|for] {d}")),
    Service("[create|add|write|save]_[note|memo]", "[Save|Write] a note", {"t": _TEXT}, (
    "[Make|Take|Write|Save|Create] a note: {t}", "[Note|Write down|Note down]: {t}", "[Note that|Write down that] {t}",
    "记下:{t}")),
    Service("[log|record|add|save|track]_[expense|spending|cost|purchase]", "[Record|Log] [an expense|what was spent]",
    {"n": ("[amount|sum|value|cost|euros]", "number", "degrees"), "i": ("[item|on|for|what|category|purpose]", "string",
    "item")}, ("I [paid|gave|spent] {n} [for|on] [a |the |]{i}[, log it|, save that|][.|]",
    "[Log|Record|Save|Add] {n}[ euros| dollars|] for [the |a |]{i}[.|]", "[The |]{i} cost me {n}[, record it|][.|]",
    "{n} [spent on|for] {i}[.|]")),
    Service("[add|invite|put|join]_[to_group|member|to_team|participant|to_room]",
    "[Add|Invite] a person to a [group|team|channel]", {"p": _PERSON, "g": ("[group|team|channel|room|list]", "string",
    "word")}, ("[Add|Invite|Put] {p} [to|into|in] [the [group|team|channel|club] |]{g}[.|]",
    "{p} should be in [the [group|team] |]{g}[.|]", "[Add|Invite] to {g}: {p}", "Let {p} into {g}[.|]")),
    Service("[search|find|list|get]_[articles|papers|books|videos|posts|offers]",
    "[Search|Find] [articles|papers|videos]", {"q": ("[query|topic|q|about|keywords]", "string", "query"), "n": (
    "[limit|max|count|max_results|top]", "integer", "digit")}, (
    "[Find|Search|Show me|List|Get] {n} [articles|papers|books|videos|posts|results] [about|on|for] {q}[.|]",
    "[Search|Look] for {q}[, | and show ][at most|no more than|only|up to] {n}[ results| hits|][.|]",
    "{q}: [top|the best|first] {n}[.|]", "[Find|Show] [articles|papers] [about|on] {q}[, | ][max|limit|at most] {n}")),
    Service("[set|switch|toggle|control]_[device|switch|plug|machine|lamp]", "[Switch|Turn] a device on or off", {"i": (
    "[device|name|which|plug|item]", "string", "item"), "o": ("[on|state|power|enabled|is_on]", "boolean", "on")}, (
    "[Turn|Switch] {o} the {i}[.|]", "[Turn|Switch] the {i} {o}[.|]", "{i} {o}[, please|][.|]",
    "[The |]{i} should be {o}[.|]", "[Please |]put the {i} {o}[.|]")),
    Service("[play|queue|start]_[track|song|title]", "Play a song by its title", {"t": ("[title|song|track|name]",
    "string", "title"), "a": ("[artist|singer|by|band]", "string", "artist")}, (
    "[Play|Put on|Start] {t} by {a}[.|]", "[Play|I'd like] the song {t} [by|from] {a}[.|]", "{a}: {t}",
    "[I'd like to|Let me] hear {t} [by|of] {a}[.|]")),
    Service("[remind|notify|tell]_[me|about|later]", "Remind of something at a time", {"t": (
    "[text|what|message|about]", "string", "text"), "w": ("[time|at|when]", "string", "clock")}, (
    "[Remind me|Tell me] at {w}: {t}", "At {w}[,|] remind me: {t}", "[Remind me|Notify me] [about|of] {t} at {w}[.|]",
    "{w} [reminder|note]: {t}")),
    Service("[delete|remove|erase]_[file|document|note]", "[Delete|Remove] a file", {"f": (
    "[file|name|path|filename|file_name]", "string", "file")}, ("[Delete|Remove|Erase] [the file |]{f}[.|]",
    "Get rid of [the file |]{f}[.|]", "[I don't need|Throw away] {f}[ any more|][.|]", "删除[文件|]{f}。")),
    Service("[read|open|load|show|get]_[file|document]", "[Open|Read] a file", {"f": ("[file|name|path|filename]",
    "string", "file")}, ("[Open|Read|Show|Load] [the file |me the file |]{f}[.|]",
    "What [is|stands] in [the file |]{f}?", "[The contents|Content] of {f}", "打开[文件|]{f}。")),
    Service("[rename|move|copy]_file", "[Rename|Move|Copy] a file", {"a": ("[from|source|old|old_name]", "string",
    "file"), "b": ("[to|target|new|new_name|destination]", "string", "file2")}, ("[Rename|Move|Copy] {a} to {b}[.|]",
    "[Rename|Move|Copy] the file {a} to {b}[.|]")),
    Service("[run|execute]_[command|program|script|query]", "[Run|Execute] a [command|program]", {"c": (
    "[command|program|script|cmd]", "string", "file")}, ("[Run|Execute|Start] [the command |the program |]{c}[.|]",
    "Can you run {c}?")),
    Service("[get|find|look_up|show]_[user|customer|account|profile]",
    "[Find|Look up] a [user|customer] by [id|number]", {"n": ("[id|user_id|number|customer_id]", "integer", "count")},
    ("[Who is|Show me|Find|Get|Look up] [user|customer|account] [number |]{n}[?|]", "[User|Customer|Account] {n}")),
    Service("[track|find|locate]_[order|package|parcel|shipment]", "[Track|Locate] [an order|a package]", {"n": (
    "[order_id|number|id|tracking_number]", "string", "code")}, (
    "[Where is|Track|Find] [my |the |][order|package|parcel] [number |]{n}[?|]",
    "[What is the status|Status] of [order|package] {n}[?|]", "[查询|跟踪]包裹{n}。")),
    Service("[cancel]_[order|booking|reservation|subscription]", "Cancel [an order|a booking]", {"n": (
    "[order_id|number|id|reference]", "string", "code")}, (
    "[Cancel|Stop] [my |the |][order|booking|reservation] [number |]{n}[.|]",
    "I [want|would like] to cancel [order|booking] {n}[.|]", "取消订单{n}。")),
    Service("[roll|throw]_[dice|die]", "Roll dice", {"n": ("[count|dice|number|times]", "integer", "digit"), "s": (
    "[sides|faces|size]", "integer", "count")}, ("[Roll|Throw] {n} dice with {s} sides[.|]",
    "[Roll|Throw] {n} {s}-sided dice[.|]", "{n} dice, {s} sides")),
    Service("[random|get_random|pick]_number", "A random number between two bounds", {"a": ("[low|min|from|start]",
    "integer", "digit"), "b": ("[high|max|to|end]", "integer", "count")}, (
    "[Give me|Pick|Choose|Generate] a random number [between {a} and {b}|from {a} to {b}][.|]",
    "Random number [between {a} and {b}|from {a} to {b}]")),
    Service("[pay|transfer|send|wire]_[money|payment|funds]", "[Pay|Transfer] money to [a person|someone]", {"n": (
    "[amount|sum|value|euros|dollars]", "number", "degrees"), "p": _PERSON}, (
    "[Pay|Send|Transfer|Give|Wire] {p} {n}[ euros| dollars|][.|]",
    "[Send|Transfer|Pay|Wire] {n} [euros |dollars |]to {p}[.|]", "给{p}转{n}元。")),
    Service("[paint|color|set_color|change_color]", "[Paint|Colour] something", {"i": _ITEM, "c": (
    "[color|colour|shade]", "string", "color")}, ("[Paint|Color|Make|Dye] the {i} {c}[.|]",
    "I want [the|a] {i} in {c}[.|]", "Change the color of the {i} to {c}[.|]")),
    Service("[find|get|show|locate]_[restaurant|shop|pharmacy|museum|cinema]",
    "[Find|Show] [a restaurant|a shop] nearby", {"c": _CITY}, (
    "[Find|Show me|Where is|Is there|I need] a [restaurant|shop|pharmacy|museum|cinema] in {c}[?|]",
    "[Restaurants|Shops|Museums] in {c}")),
    Service("[create|add|register|new]_[user|contact|customer|member]", "[Create|Add] a [user|contact]", {"p": (
    "[name|username|full_name|user]", "string", "name"), "n": ("[age|years|phone|number]", "integer", "count")}, (
    "[Create|Add|Register] a [user|contact|member] {p}, {n}[.|]",
    "[Create|Add|Register] [the user |]{p}, [aged|number] {n}[.|]", "New [user|member|contact]: {p}, {n}")),
    Service("[rate|review|score]_[movie|book|film|product]", "[Rate|Review] a [movie|book]", {"t": (
    "[title|name|movie|book]", "string", "title"), "n": ("[stars|rating|score|points]", "integer", "digit")}, (
    "[Rate|Give] {t} {n} [stars|points][.|]", "[I give|My rating for] {t}[:|] {n} [stars|points][.|]",
    "{n} stars for {t}[.|]")),
    Service("[get|find|look_up]_[definition|meaning|word]", "[Look up|Get] the [definition|meaning] of a word", {"w":
    ("[word|term|query|phrase]", "string", "word")}, ("What does [the word |]{w} mean?", "What's the meaning of {w}?",
    "[Definition|Meaning] of {w}", "[Look up|Define] {w}[.|]")),
    Service("[check|get|is]_[stock|inventory|availability|in_stock]", "Check whether a product is in stock", {"i":
    _ITEM}, ("[Is|Are] [the |]{i} [in stock|available]?", "[Do you have|Have you got] [a |any |]{i}?",
    "[Check|How many] [the stock of |]{i}[ are left|][?|]", "还有{i}吗?")),
    Service("[get|find]_[birthday|age|phone_number|address|email]",
    "[Get|Find] the [birthday|phone number|address] of a person", {"p": _PERSON}, (
    "[When is {p}'s birthday|What is {p}'s number|Where does {p} live|How old is {p}|What is {p}'s email]?",
    "[Get|Find|I need] [the number|the address|the birthday] of {p}[.|]", "{p}的[电话|地址|生日]是什么?")),
)  # fmt: skip
