"""What pocket knows by heart: tables of facts, words and names, English beside Chinese."""

# Country, capital, the same in Chinese.
CAPITALS = (
    ("France", "Paris", "法国", "巴黎"), ("Germany", "Berlin", "德国", "柏林"), ("Italy", "Rome", "意大利", "罗马"),
    ("Spain", "Madrid", "西班牙", "马德里"), ("Portugal", "Lisbon", "葡萄牙", "里斯本"), ("Norway", "Oslo", "挪威",
     "奥斯陆"),
    ("Sweden", "Stockholm", "瑞典", "斯德哥尔摩"), ("Finland", "Helsinki", "芬兰", "赫尔辛基"),
    ("Denmark", "Copenhagen", "丹麦", "哥本哈根"), ("Poland", "Warsaw", "波兰", "华沙"),
    ("Austria", "Vienna", "奥地利", "维也纳"), ("Hungary", "Budapest", "匈牙利", "布达佩斯"),
    ("Greece", "Athens", "希腊", "雅典"), ("Ireland", "Dublin", "爱尔兰", "都柏林"), ("Russia", "Moscow", "俄罗斯",
     "莫斯科"),
    ("Ukraine", "Kyiv", "乌克兰", "基辅"), ("Turkey", "Ankara", "土耳其", "安卡拉"), ("Egypt", "Cairo", "埃及",
     "开罗"),
    ("Kenya", "Nairobi", "肯尼亚", "内罗毕"), ("Morocco", "Rabat", "摩洛哥", "拉巴特"), ("China", "Beijing", "中国",
     "北京"),
    ("Japan", "Tokyo", "日本", "东京"), ("South Korea", "Seoul", "韩国", "首尔"), ("India", "New Delhi", "印度",
     "新德里"),
    ("Thailand", "Bangkok", "泰国", "曼谷"), ("Vietnam", "Hanoi", "越南", "河内"), ("Iran", "Tehran", "伊朗",
     "德黑兰"),
    ("Iraq", "Baghdad", "伊拉克", "巴格达"), ("Canada", "Ottawa", "加拿大", "渥太华"), ("Cuba", "Havana", "古巴",
     "哈瓦那"),
    ("Brazil", "Brasilia", "巴西", "巴西利亚"), ("Argentina", "Buenos Aires", "阿根廷", "布宜诺斯艾利斯"),
    ("Chile", "Santiago", "智利", "圣地亚哥"), ("Peru", "Lima", "秘鲁", "利马"), ("Australia", "Canberra", "澳大利亚",
     "堪培拉"),
    ("Mexico", "Mexico City", "墨西哥", "墨西哥城"), ("Belgium", "Brussels", "比利时", "布鲁塞尔"),
    ("Switzerland", "Bern", "瑞士", "伯尔尼"), ("Iceland", "Reykjavik", "冰岛", "雷克雅未克"), ("Nepal", "Kathmandu",
     "尼泊尔", "加德满都"),
)  # fmt: skip

OPPOSITES = (
    ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("high", "low"), ("old", "young"), ("good", "bad"),
    ("happy", "sad"), ("early", "late"), ("open", "closed"), ("full", "empty"), ("light", "dark"), ("rich", "poor"),
    ("strong", "weak"), ("wet", "dry"), ("hard", "soft"), ("near", "far"), ("long", "short"), ("loud", "quiet"),
    ("thick", "thin"), ("clean", "dirty"), ("left", "right"), ("up", "down"), ("day", "night"), ("yes", "no"),
)  # fmt: skip
ZH_OPPOSITES = (
    ("大", "小"), ("高", "低"), ("快", "慢"), ("冷", "热"), ("多", "少"), ("长", "短"), ("新", "旧"), ("黑", "白"),
    ("早", "晚"), ("远", "近"), ("左", "右"), ("上", "下"), ("开", "关"), ("好", "坏"), ("强", "弱"), ("轻", "重"),
)  # fmt: skip

# Thing, its colour, the same in Chinese.
COLOURS = (
    ("grass", "green", "草", "绿色"), ("snow", "white", "雪", "白色"), ("the sky", "blue", "天空", "蓝色"),
    ("coal", "black", "煤", "黑色"), ("blood", "red", "血", "红色"), ("a banana", "yellow", "香蕉", "黄色"),
    ("an orange", "orange", "橙子", "橙色"), ("milk", "white", "牛奶", "白色"), ("a tomato", "red", "西红柿", "红色"),
    ("a lemon", "yellow", "柠檬", "黄色"), ("the sea", "blue", "大海", "蓝色"), ("chocolate", "brown", "巧克力",
     "棕色"),
)  # fmt: skip

SYMBOLS = (
    ("hydrogen", "H", "氢"), ("helium", "He", "氦"), ("carbon", "C", "碳"), ("nitrogen", "N", "氮"), ("oxygen", "O",
     "氧"),
    ("sodium", "Na", "钠"), ("iron", "Fe", "铁"), ("copper", "Cu", "铜"), ("silver", "Ag", "银"), ("gold", "Au",
     "金"),
    ("lead", "Pb", "铅"), ("sulfur", "S", "硫"), ("calcium", "Ca", "钙"), ("zinc", "Zn", "锌"),
)  # fmt: skip

TRANSLATIONS = (
    ("water", "水"), ("fire", "火"), ("mountain", "山"), ("river", "河"), ("moon", "月亮"), ("sun", "太阳"), ("book",
     "书"),
    ("house", "房子"), ("cat", "猫"), ("dog", "狗"), ("horse", "马"), ("fish", "鱼"), ("bird", "鸟"), ("tree", "树"),
    ("flower", "花"), ("apple", "苹果"), ("tea", "茶"), ("rice", "米饭"), ("friend", "朋友"), ("teacher", "老师"),
    ("school", "学校"), ("car", "汽车"), ("city", "城市"), ("rain", "雨"), ("door", "门"), ("hand", "手"), ("heart",
     "心"),
    ("love", "爱"), ("peace", "和平"), ("bread", "面包"),
)  # fmt: skip

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ZH_DAYS = ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日")

NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Mary", "Noah",
    "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wendy", "Max", "Lucy", "Peter",
)  # fmt: skip
ZH_NAMES = (
    "小明", "小红", "小李", "小王", "小张", "小刘", "小陈", "小芳", "小华", "小丽", "小强", "小军", "小梅", "小龙",
)  # fmt: skip
CITIES = tuple(row[1] for row in CAPITALS)
ZH_CITIES = tuple(row[3] for row in CAPITALS)

ITEMS = (
    "apple", "bread", "cheese", "chair", "table", "lamp", "book", "pen", "cup", "knife", "hat", "shoe", "coat",
    "clock",
    "phone", "ball", "key", "map", "box", "bag", "milk", "salt", "rice", "tea", "soap", "spoon", "plate", "rope",
)  # fmt: skip
ZH_ITEMS = (
    "苹果", "面包", "牛奶", "香蕉", "桌子", "椅子", "灯", "书", "笔", "杯子", "帽子", "鞋", "钟", "球", "钥匙",
    "盒子", "米饭", "茶",
)  # fmt: skip

# Words to spell, copy and reverse.
WORDS = (
    *ITEMS, "water", "river", "moon", "house", "horse", "fish", "bird", "tree", "flower", "friend", "school", "city",
    "rain", "door", "hand", "heart", "love", "peace", "green", "white", "black", "yellow", "banana", "lemon",
    "tomato",
    "stone", "wind", "storm", "cloud", "star", "sand", "gold", "iron", "silver", "music", "piano", "dance", "garden",
    "window", "street", "bridge", "train", "plane", "boat", "summer", "winter", "spring", "letter", "paper", "pencil",
    "carrot", "pepper", "butter", "sugar", "honey", "rabbit", "tiger", "mouse", "sheep", "snake", "puppy", "kitten",
    "hello", "world", "computer", "python", "pocket", "strawberry", "chocolate", "elephant", "keyboard", "mountain",
    "library", "kitchen", "science", "orange", "purple", "planet", "animal", "family", "doctor", "teacher", "market",
    "morning", "evening", "village", "castle", "dragon", "monkey", "lion", "bear", "wolf", "duck", "goose", "eagle",
    "coffee", "cookie", "sandwich", "potato", "onion", "grape", "cherry", "mango", "peach", "camera", "guitar",
    "violin", "drum", "engine", "bottle", "basket", "ladder", "hammer", "mirror", "candle", "blanket", "pillow",
    "jacket", "button", "question", "answer", "number", "language", "country", "island", "ocean",
    "forest", "desert", "valley", "shadow", "thunder", "rainbow", "winner", "dinner", "lunch", "breakfast",
)  # fmt: skip

# What people ask about and pocket has not learnt.
TOPICS = (
    "quantum physics", "the French Revolution", "black holes", "the stock market", "football", "chess", "Shakespeare",
    "dinosaurs", "the Roman Empire", "electric cars", "philosophy", "the Olympics", "cooking pasta", "jazz",
    "vaccines",
    "climate change", "the internet", "bitcoin", "evolution", "the Cold War", "gravity", "photosynthesis", "yoga",
    "architecture", "volcanoes", "the human brain", "democracy", "opera", "inflation", "robots",
)  # fmt: skip
ZH_TOPICS = (
    "量子物理", "法国大革命", "黑洞", "股市", "足球", "围棋", "莎士比亚", "恐龙", "罗马帝国", "电动汽车", "哲学",
    "奥运会", "爵士乐",
    "疫苗", "气候变化", "互联网", "比特币", "进化论", "冷战", "万有引力", "光合作用", "瑜伽", "建筑", "火山", "大脑",
    "民主", "歌剧",
)  # fmt: skip
