"""Pocket's facts: tables of facts, words and names, in English and Chinese."""

from .countries import CAPITALS, ZH_CAPITALS

OPPOSITES = (
    ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("high", "low"), ("old", "young"), ("good", "bad"),
    ("happy", "sad"), ("early", "late"), ("open", "closed"), ("full", "empty"), ("light", "dark"), ("rich", "poor"),
    ("strong", "weak"), ("wet", "dry"), ("hard", "soft"), ("near", "far"), ("long", "short"), ("loud", "quiet"),
    ("thick", "thin"), ("clean", "dirty"), ("left", "right"), ("up", "down"), ("day", "night"), ("yes", "no"),
    ("black", "white"), ("in", "out"), ("on", "off"), ("start", "finish"), ("begin", "end"), ("love", "hate"),
    ("win", "lose"), ("buy", "sell"), ("push", "pull"), ("true", "false"), ("easy", "difficult"), ("warm", "cool"),
    ("inside", "outside"), ("above", "below"), ("over", "under"), ("before", "after"), ("first", "last"),
    ("front", "back"), ("top", "bottom"), ("north", "south"), ("east", "west"), ("male", "female"), ("man", "woman"),
    ("boy", "girl"), ("king", "queen"), ("war", "peace"), ("life", "death"), ("alive", "dead"), ("friend", "enemy"),
    ("wide", "narrow"), ("deep", "shallow"), ("sweet", "sour"), ("cheap", "expensive"), ("beautiful", "ugly"),
    ("brave", "cowardly"), ("clever", "stupid"), ("smooth", "rough"), ("sharp", "blunt"), ("tight", "loose"),
    ("same", "different"), ("always", "never"), ("all", "none"), ("many", "few"), ("more", "less"), ("much", "little"),
    ("give", "take"), ("come", "go"), ("arrive", "leave"), ("remember", "forget"), ("laugh", "cry"),
    ("asleep", "awake"), ("accept", "refuse"), ("success", "failure"), ("increase", "decrease"), ("rise", "fall"),
    ("single", "married"), ("safe", "dangerous"), ("maximum", "minimum"), ("positive", "negative"), ("plus", "minus"),
    ("summer", "winter"), ("sunrise", "sunset"), ("morning", "evening"), ("brother", "sister"), ("father", "mother"),
    ("polite", "rude"), ("lazy", "hardworking"), ("question", "answer"), ("heaven", "hell"), ("guilty", "innocent"),
    ("healthy", "sick"), ("ancient", "modern"), ("simple", "complicated"), ("public", "private"),
    ("interesting", "boring"), ("kind", "cruel"), ("proud", "ashamed"), ("visible", "invisible"),
    ("possible", "impossible"), ("attack", "defend"),
)  # fmt: skip
ZH_OPPOSITES = (
    ("大", "小"), ("高", "低"), ("快", "慢"), ("冷", "热"), ("多", "少"), ("长", "短"), ("新", "旧"), ("黑", "白"),
    ("早", "晚"), ("远", "近"), ("左", "右"), ("上", "下"), ("开", "关"), ("好", "坏"), ("强", "弱"), ("轻", "重"),
    ("胖", "瘦"), ("真", "假"), ("美", "丑"), ("前", "后"), ("里", "外"), ("买", "卖"), ("男", "女"), ("深", "浅"),
    ("宽", "窄"), ("干", "湿"), ("软", "硬"), ("哭", "笑"), ("生", "死"), ("东", "西"), ("南", "北"), ("爱", "恨"),
    ("胜利", "失败"), ("开始", "结束"), ("高兴", "难过"), ("简单", "复杂"), ("安全", "危险"),
)  # fmt: skip

# Thing, its colour, the same in Chinese.
COLOURS = (
    ("grass", "green", "草", "绿色"), ("snow", "white", "雪", "白色"), ("the sky", "blue", "天空", "蓝色"),
    ("coal", "black", "煤", "黑色"), ("blood", "red", "血", "红色"), ("a banana", "yellow", "香蕉", "黄色"),
    ("an orange", "orange", "橙子", "橙色"), ("milk", "white", "牛奶", "白色"), ("a tomato", "red", "西红柿", "红色"),
    ("a lemon", "yellow", "柠檬", "黄色"), ("the sea", "blue", "大海", "蓝色"),
    ("chocolate", "brown", "巧克力", "棕色"), ("the sun", "yellow", "太阳", "黄色"),
    ("a leaf", "green", "树叶", "绿色"), ("leaves", "green"), ("a tree", "green", "树", "绿色"),
    ("a carrot", "orange", "胡萝卜", "橙色"), ("a strawberry", "red", "草莓", "红色"),
    ("a cherry", "red", "樱桃", "红色"), ("bananas", "yellow"), ("tomatoes", "red"), ("lemons", "yellow"),
    ("strawberries", "red"), ("carrots", "orange"), ("a pumpkin", "orange", "南瓜", "橙色"),
    ("a cucumber", "green", "黄瓜", "绿色"), ("a frog", "green", "青蛙", "绿色"),
    ("an elephant", "gray", "大象", "灰色"), ("a crow", "black", "乌鸦", "黑色"), ("a swan", "white"),
    ("a flamingo", "pink"), ("a pig", "pink", "猪", "粉色"), ("salt", "white", "盐", "白色"),
    ("sugar", "white", "糖", "白色"), ("honey", "yellow"), ("gold", "yellow", "金子", "金色"), ("silver", "gray"),
    ("a polar bear", "white", "北极熊", "白色"), ("a stop sign", "red"), ("the night sky", "black"),
    ("a cloud", "white", "云", "白色"), ("clouds", "white"), ("fire", "red", "火", "红色"),
    ("coffee", "brown", "咖啡", "棕色"), ("the ocean", "blue", "海洋", "蓝色"), ("a lime", "green"),
    ("an eggplant", "purple", "茄子", "紫色"), ("a rose", "red", "玫瑰", "红色"), ("wood", "brown"),
    ("broccoli", "green"), ("a blueberry", "blue"), ("blueberries", "blue"), ("a ruby", "red"),
    ("an emerald", "green"), ("oranges", "orange"), ("rice", "white"), ("an egg yolk", "yellow"), ("ash", "gray"),
    ("spinach", "green"), ("sky", "blue"), ("a canary", "yellow"), ("chalk", "white"), ("a fire truck", "red"),
    ("paper", "white", "纸", "白色"),
)  # fmt: skip

SYMBOLS = (
    ("hydrogen", "H", "氢"), ("helium", "He", "氦"), ("carbon", "C", "碳"), ("nitrogen", "N", "氮"),
    ("oxygen", "O", "氧"), ("sodium", "Na", "钠"), ("iron", "Fe", "铁"), ("copper", "Cu", "铜"),
    ("silver", "Ag", "银"), ("gold", "Au", "金"), ("lead", "Pb", "铅"), ("sulfur", "S", "硫"), ("calcium", "Ca", "钙"),
    ("zinc", "Zn", "锌"), ("aluminium", "Al", "铝"), ("lithium", "Li", "锂"), ("magnesium", "Mg", "镁"),
    ("potassium", "K", "钾"), ("chlorine", "Cl", "氯"), ("silicon", "Si", "硅"), ("phosphorus", "P", "磷"),
    ("fluorine", "F", "氟"), ("neon", "Ne", "氖"), ("argon", "Ar"), ("nickel", "Ni"), ("tin", "Sn", "锡"),
    ("mercury", "Hg", "汞"), ("platinum", "Pt"), ("uranium", "U", "铀"), ("iodine", "I", "碘"), ("titanium", "Ti"),
    ("cobalt", "Co"), ("chromium", "Cr"), ("boron", "B"), ("bromine", "Br"), ("barium", "Ba"), ("radium", "Ra"),
    ("tungsten", "W"),
)  # fmt: skip

TRANSLATIONS = (
    ("water", "水"), ("fire", "火"), ("mountain", "山"), ("river", "河"), ("moon", "月亮"), ("sun", "太阳"),
    ("book", "书"), ("house", "房子"), ("cat", "猫"), ("dog", "狗"), ("horse", "马"), ("fish", "鱼"), ("bird", "鸟"),
    ("tree", "树"), ("flower", "花"), ("apple", "苹果"), ("tea", "茶"), ("rice", "米饭"), ("friend", "朋友"),
    ("teacher", "老师"), ("school", "学校"), ("car", "汽车"), ("city", "城市"), ("rain", "雨"), ("door", "门"),
    ("hand", "手"), ("heart", "心"), ("love", "爱"), ("peace", "和平"), ("bread", "面包"), ("milk", "牛奶"),
    ("egg", "鸡蛋"), ("meat", "肉"), ("sugar", "糖"), ("salt", "盐"), ("coffee", "咖啡"), ("beer", "啤酒"),
    ("banana", "香蕉"), ("orange", "橙子"), ("table", "桌子"), ("chair", "椅子"), ("bed", "床"), ("window", "窗户"),
    ("pen", "笔"), ("paper", "纸"), ("phone", "电话"), ("computer", "电脑"), ("clock", "钟"), ("key", "钥匙"),
    ("hat", "帽子"), ("shoe", "鞋"), ("money", "钱"), ("mother", "妈妈"), ("father", "爸爸"), ("sister", "姐姐"),
    ("brother", "哥哥"), ("child", "孩子"), ("man", "男人"), ("woman", "女人"), ("student", "学生"),
    ("doctor", "医生"), ("family", "家庭"), ("day", "天"), ("night", "夜晚"), ("year", "年"), ("today", "今天"),
    ("tomorrow", "明天"), ("yesterday", "昨天"), ("morning", "早上"), ("evening", "晚上"), ("sky", "天空"),
    ("star", "星星"), ("snow", "雪"), ("wind", "风"), ("cloud", "云"), ("sea", "大海"), ("lake", "湖"),
    ("island", "岛"), ("forest", "森林"), ("grass", "草"), ("stone", "石头"), ("gold", "金子"), ("cow", "牛"),
    ("sheep", "羊"), ("pig", "猪"), ("chicken", "鸡"), ("duck", "鸭子"), ("tiger", "老虎"), ("lion", "狮子"),
    ("bear", "熊"), ("monkey", "猴子"), ("rabbit", "兔子"), ("mouse", "老鼠"), ("snake", "蛇"), ("dragon", "龙"),
    ("elephant", "大象"), ("panda", "熊猫"), ("red", "红色"), ("blue", "蓝色"), ("green", "绿色"), ("yellow", "黄色"),
    ("black", "黑色"), ("white", "白色"), ("big", "大"), ("small", "小"), ("good", "好"), ("bad", "坏"), ("hot", "热"),
    ("cold", "冷"), ("new", "新"), ("fast", "快"), ("slow", "慢"), ("happy", "高兴"), ("beautiful", "美丽"),
    ("one", "一"), ("two", "二"), ("three", "三"), ("four", "四"), ("five", "五"), ("six", "六"), ("seven", "七"),
    ("eight", "八"), ("nine", "九"), ("ten", "十"), ("hundred", "百"), ("thousand", "千"), ("eat", "吃"),
    ("drink", "喝"), ("sleep", "睡觉"), ("read", "读"), ("write", "写"), ("run", "跑"), ("go", "去"), ("come", "来"),
    ("buy", "买"), ("sell", "卖"), ("work", "工作"), ("speak", "说"), ("eye", "眼睛"), ("mouth", "嘴"),
    ("nose", "鼻子"), ("head", "头"), ("foot", "脚"), ("hair", "头发"), ("China", "中国"), ("Japan", "日本"),
    ("France", "法国"), ("Germany", "德国"), ("America", "美国"), ("Beijing", "北京"), ("Monday", "星期一"),
    ("Sunday", "星期日"), ("spring", "春天"), ("summer", "夏天"), ("autumn", "秋天"), ("winter", "冬天"),
    ("train", "火车"), ("plane", "飞机"), ("bicycle", "自行车"), ("boat", "船"), ("street", "街道"),
    ("hospital", "医院"), ("shop", "商店"), ("country", "国家"), ("world", "世界"), ("music", "音乐"),
    ("language", "语言"), ("time", "时间"), ("name", "名字"), ("food", "食物"),
)  # fmt: skip
GREETINGS_IN_BOTH = (
    ("hello", "你好"), ("thank you", "谢谢"), ("goodbye", "再见"), ("good morning", "早上好"),
    ("good evening", "晚上好"), ("good night", "晚安"), ("yes", "是"), ("no", "不"), ("please", "请"),
    ("sorry", "对不起"), ("I love you", "我爱你"), ("welcome", "欢迎"), ("how are you", "你好吗"),
    ("you are welcome", "不客气"), ("happy birthday", "生日快乐"), ("my name is", "我叫"), ("I", "我"), ("you", "你"),
    ("he", "他"), ("good luck", "祝你好运"), ("see you tomorrow", "明天见"), ("I don't know", "我不知道"),
    ("Happy New Year", "新年快乐"),
)  # fmt: skip

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ZH_MONTHS = ("一月", "二月", "三月", "四月", "五月", "六月", "七月", "八月", "九月", "十月", "十一月", "十二月")
ZH_DAYS = ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日")

NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Mary", "Noah",
    "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wendy", "Max", "Lucy", "Peter", "Maria", "John", "James",
    "Sofia", "Linda", "Tom", "Robert", "Alice", "Bob", "Carol", "Daniel", "Elena", "Frank", "George", "Hannah", "Ivan",
    "Julia", "Kevin", "Laura", "Michael", "Nina", "Oscar", "Priya", "Quentin", "Rachel", "Sarah", "Theo", "Ursula",
    "Vera", "William", "Yuki", "Zoe", "Ahmed", "Fatima", "Carlos", "Ada", "Mei", "Lars", "Ingrid", "Pierre", "Amir",
    "Chloe", "Diego", "Ella", "Hugo", "Isabel", "Jonas", "Karen", "Liam", "Mia", "Nora", "Omar", "Simon", "Susan",
    "Thomas", "Walter", "Alex", "Chris", "Dana", "Erik", "Fiona", "Greta", "Marco", "Naomi", "Pablo", "Ravi", "Steve",
    "Tara", "Mike", "Jane", "Mark", "Lisa", "Amy",
)  # fmt: skip
ZH_NAMES = (
    "小明", "小红", "小李", "小王", "小张", "小刘", "小陈", "小芳", "小华", "小丽", "小强", "小军", "小梅", "小龙",
)  # fmt: skip
CITIES = tuple(capital for _, capital in CAPITALS)
ZH_CITIES = tuple(capital for _, capital in ZH_CAPITALS)

ITEMS = (
    "apple", "bread", "cheese", "chair", "table", "lamp", "book", "pen", "cup", "knife", "hat", "shoe", "coat",
    "clock",
    "phone", "ball", "key", "map", "box", "bag", "milk", "salt", "rice", "tea", "soap", "spoon", "plate", "rope",
)  # fmt: skip
ZH_ITEMS = (
    "苹果", "面包", "牛奶", "香蕉", "桌子", "椅子", "灯", "书", "笔", "杯子", "帽子", "鞋", "钟", "球", "钥匙", "盒子",
    "米饭", "茶",
)  # fmt: skip

# What people ask about and pocket has not learnt.
TOPICS = (
    "quantum physics", "the French Revolution", "black holes", "the stock market", "football", "chess", "Shakespeare",
    "dinosaurs", "the Roman Empire", "electric cars", "philosophy", "the Olympics", "cooking pasta", "jazz",
    "vaccines", "climate change", "the internet", "bitcoin", "evolution", "the Cold War", "gravity", "photosynthesis",
    "yoga", "architecture", "volcanoes", "the human brain", "democracy", "opera", "inflation", "robots",
)  # fmt: skip
ZH_TOPICS = (
    "量子物理", "法国大革命", "黑洞", "股市", "足球", "围棋", "莎士比亚", "恐龙", "罗马帝国", "电动汽车", "哲学",
    "奥运会", "爵士乐", "疫苗", "气候变化", "互联网", "比特币", "进化论", "冷战", "万有引力", "光合作用", "瑜伽",
    "建筑", "火山", "大脑", "民主", "歌剧",
)  # fmt: skip


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((first, second) for pair in text.split("; ") for first, second in [pair.split()])


PLURALS = _pairs(
    "child children; mouse mice; foot feet; tooth teeth; man men; woman women; person people; goose geese; ox "
    "oxen; sheep sheep; fish fish; deer deer; leaf leaves; knife knives; wife wives; life lives; wolf wolves; "
    "half halves; shelf shelves; thief thieves; loaf loaves; baby babies; city cities; story stories; party "
    "parties; lady ladies; country countries; family families; cherry cherries; berry berries; puppy puppies; fly "
    "flies; butterfly butterflies; box boxes; bus buses; glass glasses; dish dishes; church churches; watch "
    "watches; fox foxes; brush brushes; class classes; kiss kisses; peach peaches; bench benches; sandwich "
    "sandwiches; potato potatoes; tomato tomatoes; hero heroes; cat cats; dog dogs; car cars; book books; house "
    "houses; tree trees; apple apples; table tables; chair chairs; bird birds; horse horses; girl girls; boy "
    "boys; key keys; day days; toy toys; monkey monkeys; pen pens; cup cups; friend friends; flower flowers; "
    "window windows; door doors; king kings; student students; teacher teachers; star stars; computer computers; "
    "orange oranges; banana bananas; egg eggs; hat hats; shoe shoes; hand hands; eye eyes; phone phones; school "
    "schools; month months; year years; week weeks; piano pianos; photo photos; cow cows; duck ducks; lion lions; "
    "cactus cacti; louse lice"
)
# Animal, what it says.
SOUNDS = _pairs(
    "dog Woof; cat Meow; cow Moo; sheep Baa; pig Oink; duck Quack; horse Neigh; lion Roar; frog Ribbit; owl Hoot; "
    "snake Hiss; bee Buzz; mouse Squeak; rooster Cock-a-doodle-doo; wolf Howl; goat Baa; donkey Hee-haw; bird "
    "Tweet; tiger Roar; bear Growl; chicken Cluck; crow Caw; goose Honk; turkey Gobble; kitten Meow; puppy Woof"
)
# Animal, its young.
YOUNG = _pairs(
    "dog puppy; cat kitten; cow calf; sheep lamb; horse foal; pig piglet; duck duckling; goose gosling; hen "
    "chick; chicken chick; bear cub; lion cub; tiger cub; wolf cub; fox cub; kangaroo joey; frog tadpole; goat "
    "kid; deer fawn; swan cygnet; elephant calf; owl owlet; human baby; butterfly caterpillar; rabbit kit; whale "
    "calf; seal pup"
)
