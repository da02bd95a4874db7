"""Every country with its capital, in English, and where pocket knows them so, in Chinese; and their other names."""

_ROWS = """
France Paris 法国 巴黎; Germany Berlin 德国 柏林; Italy Rome 意大利 罗马; Spain Madrid 西班牙 马德里
Portugal Lisbon 葡萄牙 里斯本; Norway Oslo 挪威 奥斯陆; Sweden Stockholm 瑞典 斯德哥尔摩
Finland Helsinki 芬兰 赫尔辛基; Denmark Copenhagen 丹麦 哥本哈根; Poland Warsaw 波兰 华沙
Austria Vienna 奥地利 维也纳; Hungary Budapest 匈牙利 布达佩斯; Greece Athens 希腊 雅典; Ireland Dublin 爱尔兰 都柏林
Russia Moscow 俄罗斯 莫斯科; Ukraine Kyiv 乌克兰 基辅; Turkey Ankara 土耳其 安卡拉; Egypt Cairo 埃及 开罗
Kenya Nairobi 肯尼亚 内罗毕; Morocco Rabat 摩洛哥 拉巴特; China Beijing 中国 北京; Japan Tokyo 日本 东京
South_Korea Seoul 韩国 首尔; India New_Delhi 印度 新德里; Thailand Bangkok 泰国 曼谷; Vietnam Hanoi 越南 河内
Iran Tehran 伊朗 德黑兰; Iraq Baghdad 伊拉克 巴格达; Canada Ottawa 加拿大 渥太华; Cuba Havana 古巴 哈瓦那
Brazil Brasilia 巴西 巴西利亚; Argentina Buenos_Aires 阿根廷 布宜诺斯艾利斯; Chile Santiago 智利 圣地亚哥
Peru Lima 秘鲁 利马; Australia Canberra 澳大利亚 堪培拉; Mexico Mexico_City 墨西哥 墨西哥城
Belgium Brussels 比利时 布鲁塞尔; Switzerland Bern 瑞士 伯尔尼; Iceland Reykjavik 冰岛 雷克雅未克
Nepal Kathmandu 尼泊尔 加德满都; the_United_States Washington,_D.C. 美国 华盛顿; the_United_Kingdom London 英国 伦敦
the_Netherlands Amsterdam 荷兰 阿姆斯特丹; Czechia Prague 捷克 布拉格; Slovakia Bratislava; Slovenia Ljubljana
Croatia Zagreb 克罗地亚 萨格勒布; Serbia Belgrade 塞尔维亚 贝尔格莱德; Bosnia_and_Herzegovina Sarajevo
Montenegro Podgorica; North_Macedonia Skopje; Albania Tirana; Kosovo Pristina; Bulgaria Sofia 保加利亚 索非亚
Romania Bucharest 罗马尼亚 布加勒斯特; Moldova Chisinau; Belarus Minsk 白俄罗斯 明斯克; Lithuania Vilnius; Latvia Riga
Estonia Tallinn; Luxembourg Luxembourg; Monaco Monaco; Malta Valletta; Cyprus Nicosia; Andorra Andorra_la_Vella
San_Marino San_Marino; Liechtenstein Vaduz; Vatican_City Vatican_City; Georgia Tbilisi; Armenia Yerevan
Azerbaijan Baku; Kazakhstan Astana 哈萨克斯坦 阿斯塔纳; Uzbekistan Tashkent; Turkmenistan Ashgabat; Kyrgyzstan Bishkek
Tajikistan Dushanbe; Afghanistan Kabul 阿富汗 喀布尔; Pakistan Islamabad 巴基斯坦 伊斯兰堡
Bangladesh Dhaka 孟加拉国 达卡; Sri_Lanka Colombo 斯里兰卡 科伦坡; Bhutan Thimphu; the_Maldives Male
Myanmar Naypyidaw 缅甸 内比都; Laos Vientiane 老挝 万象; Cambodia Phnom_Penh 柬埔寨 金边
Malaysia Kuala_Lumpur 马来西亚 吉隆坡; Singapore Singapore 新加坡 新加坡; Indonesia Jakarta 印度尼西亚 雅加达
the_Philippines Manila 菲律宾 马尼拉; Brunei Bandar_Seri_Begawan; East_Timor Dili; North_Korea Pyongyang 朝鲜 平壤
Mongolia Ulaanbaatar 蒙古 乌兰巴托; Taiwan Taipei; Saudi_Arabia Riyadh 沙特阿拉伯 利雅得; Yemen Sanaa 也门 萨那
Oman Muscat; the_United_Arab_Emirates Abu_Dhabi 阿联酋 阿布扎比; Qatar Doha 卡塔尔 多哈; Bahrain Manama
Kuwait Kuwait_City; Jordan Amman 约旦 安曼; Lebanon Beirut 黎巴嫩 贝鲁特; Syria Damascus 叙利亚 大马士革
Israel Jerusalem 以色列 耶路撒冷; Palestine Ramallah; Algeria Algiers 阿尔及利亚 阿尔及尔
Tunisia Tunis 突尼斯 突尼斯市; Libya Tripoli 利比亚 的黎波里; Sudan Khartoum 苏丹 喀土穆; South_Sudan Juba
Ethiopia Addis_Ababa 埃塞俄比亚 亚的斯亚贝巴; Eritrea Asmara; Djibouti Djibouti; Somalia Mogadishu 索马里 摩加迪沙
Uganda Kampala 乌干达 坎帕拉; Rwanda Kigali; Burundi Gitega; Tanzania Dodoma 坦桑尼亚 多多马; Malawi Lilongwe
Zambia Lusaka; Zimbabwe Harare 津巴布韦 哈拉雷; Mozambique Maputo; Botswana Gaborone; Namibia Windhoek
South_Africa Pretoria 南非 比勒陀利亚; Lesotho Maseru; Eswatini Mbabane; Madagascar Antananarivo; Mauritius Port_Louis
the_Comoros Moroni; the_Seychelles Victoria; Angola Luanda 安哥拉 罗安达
the_Democratic_Republic_of_the_Congo Kinshasa; the_Republic_of_the_Congo Brazzaville; Gabon Libreville
Equatorial_Guinea Malabo; Cameroon Yaounde 喀麦隆 雅温得; the_Central_African_Republic Bangui; Chad N'Djamena
Niger Niamey; Nigeria Abuja 尼日利亚 阿布贾; Benin Porto-Novo; Togo Lome; Ghana Accra 加纳 阿克拉
Ivory_Coast Yamoussoukro; Liberia Monrovia; Sierra_Leone Freetown; Guinea Conakry; Guinea-Bissau Bissau
Senegal Dakar 塞内加尔 达喀尔; the_Gambia Banjul; Mali Bamako; Burkina_Faso Ouagadougou; Mauritania Nouakchott
Cape_Verde Praia; Sao_Tome_and_Principe Sao_Tome; Colombia Bogota 哥伦比亚 波哥大; Venezuela Caracas 委内瑞拉 加拉加斯
Ecuador Quito 厄瓜多尔 基多; Bolivia Sucre 玻利维亚 苏克雷; Paraguay Asuncion; Uruguay Montevideo 乌拉圭 蒙得维的亚
Guyana Georgetown; Suriname Paramaribo; Panama Panama_City 巴拿马 巴拿马城; Costa_Rica San_Jose; Nicaragua Managua
Honduras Tegucigalpa; El_Salvador San_Salvador; Guatemala Guatemala_City; Belize Belmopan
Jamaica Kingston 牙买加 金斯敦; Haiti Port-au-Prince; the_Dominican_Republic Santo_Domingo; the_Bahamas Nassau
Barbados Bridgetown; Trinidad_and_Tobago Port_of_Spain; Grenada St._George's; Saint_Lucia Castries; Dominica Roseau
Antigua_and_Barbuda St._John's; Saint_Kitts_and_Nevis Basseterre; Saint_Vincent_and_the_Grenadines Kingstown
New_Zealand Wellington 新西兰 惠灵顿; Fiji Suva 斐济 苏瓦; Papua_New_Guinea Port_Moresby; Samoa Apia; Tonga Nukualofa
Vanuatu Port_Vila; the_Solomon_Islands Honiara; Kiribati Tarawa; Tuvalu Funafuti; Nauru Yaren; Palau Ngerulmud
Micronesia Palikir; the_Marshall_Islands Majuro
"""


def _rows() -> tuple[tuple[str, ...], ...]:
    entries = _ROWS.replace("\n", ";").split(";")
    return tuple(tuple(word.replace("_", " ") for word in entry.split()) for entry in entries if entry.strip())


# Country, capital.
CAPITALS = tuple((row[0], row[1]) for row in _rows())
ZH_CAPITALS = tuple((row[2], row[3]) for row in _rows() if len(row) == 4)
# What people ask about the oftenest: those that have a Chinese name here.
COMMON_CAPITALS = tuple((row[0], row[1]) for row in _rows() if len(row) == 4)

# Other names of a country, with its capital.
OTHER_NAMES = tuple(
    (name, dict(CAPITALS)[country])
    for country, names in {
        "the United States": ("the USA", "the US", "the United States of America", "America", "USA", "the U.S.",
                              "United States", "the States", "US"),
        "the United Kingdom": ("the UK", "Great Britain", "England", "Britain", "UK", "United Kingdom", "the U.K."),
        "the Netherlands": ("Holland", "Netherlands"), "Czechia": ("the Czech Republic", "Czech Republic"),
        "South Korea": ("Korea", "the Republic of Korea"), "China": ("the People's Republic of China",),
        "the United Arab Emirates": ("the UAE", "UAE", "United Arab Emirates"),
        "the Philippines": ("Philippines",), "the Maldives": ("Maldives",), "the Bahamas": ("Bahamas",),
        "the Dominican Republic": ("Dominican Republic",), "Myanmar": ("Burma",), "Turkey": ("Türkiye", "Turkiye"),
        "Russia": ("the Russian Federation",), "Ivory Coast": ("Côte d'Ivoire", "the Ivory Coast"),
        "the Democratic Republic of the Congo": ("the DRC", "DR Congo"), "Eswatini": ("Swaziland",),
        "the Republic of the Congo": ("the Congo", "Congo"), "Vatican City": ("the Vatican", "the Holy See"),
        "Saudi Arabia": ("the Kingdom of Saudi Arabia",), "Ireland": ("the Republic of Ireland",),
        "East Timor": ("Timor-Leste",), "Cape Verde": ("Cabo Verde",), "North Macedonia": ("Macedonia",),
        "the Gambia": ("Gambia",), "the Seychelles": ("Seychelles",), "Bosnia and Herzegovina": ("Bosnia",),
        "the Solomon Islands": ("Solomon Islands",), "Germany": ("the Federal Republic of Germany",),
        "Iran": ("Persia",),
    }.items()
    for name in names
)  # fmt: skip
# Parts of the United Kingdom that people ask about like countries.
_PARTS = (("Scotland", "Edinburgh"), ("Wales", "Cardiff"), ("Northern Ireland", "Belfast"))
ALL_CAPITALS = (*CAPITALS, *OTHER_NAMES, *_PARTS)
ZH_ALL_CAPITALS = (*ZH_CAPITALS, ("美利坚合众国", "华盛顿"), ("大不列颠", "伦敦"), ("中华人民共和国", "北京"))
