"""Words that announce an answer, as one table: for each language those for an answer and a result, links, and copulas.

An announcement is a subject, a link and a value: `The final answer | is | 18`, `答案 | 是 | 18`. The words are patterns
for a text in which markup is blank.
"""

import re
from typing import NamedTuple


class Language(NamedTuple):
    """Words of a language, separated by `|`.

    Attributes:
        answer: subjects that announce an answer wherever they stand; after them the link may be missing.
        link: verbs between a subject and its value.
        result: subjects that announce an answer at the beginning of the last line only.
        so: words that open a conclusion.
        closing: copulas behind a value.
    """

    answer: str
    link: str
    result: str = ""
    so: str = ""
    closing: str = ""


_TABLE = r"""
zh; 答案|答(?=\s*:)|故选|所以选|因此选|应选|正确选项; 应?该?[是为]; 结果|结论|解|总[数计]|共计|即; 因此|所以|故|于是
ja; 答え|正解|答(?=\s*[:は]); は|が; 結果|合計|結論; したがって|よって|ゆえに|だから; です|である|だ|になります
ko; 정답|답변|답; 은|는|이|가; 결과|합계|총; 따라서|그러므로|그래서; 입니다|이다|이에요|예요|이므로
es; respuestas?; es|son|sería; resultado|solución|total; por (?:lo )?tanto|entonces|así que|luego
fr; réponses?; est|sont|serait; résultat|solution|total; donc|ainsi|par conséquent
de; antwort; ist|lautet|beträgt|wäre; ergebnis|lösung|gesamt; also|daher|folglich|somit
pt; resposta; é|são|seria; resultado|solução|total; portanto|logo|assim
it; risposta; è|sono|sarebbe; risultato|soluzione|totale; quindi|dunque|pertanto
nl; antwoord; is|zijn; resultaat|oplossing|totaal; dus|daarom
pl; odpowied[źz]; to|jest|brzmi; wynik|rozwiązanie|razem; zatem|więc
cs; odpověď|odpoveď; je|zní; výsledek|výsledok|celkem; tedy|tak[žz]e
ru; ответ; это|равен|равна|равно|будет; результат|итого|решение|всего; следовательно|итак|значит|поэтому|таким образом
uk; відповідь|отговор; це|є|дорівнює|е; результат|разом|розв'язок; отже|тому
sv; svaret|svar|vastaus; är|er|on; resultatet|summan|tulos; alltså|därför|derfor|altså|siis
ro; răspunsul|răspuns; este|e; rezultatul|rezultat|soluția; deci|prin urmare
hu; válasz; az|a; eredmény|megoldás|összesen; tehát|így
el; απάντηση; είναι; αποτέλεσμα|λύση|σύνολο; άρα|επομένως
tr; cevap|yanıt; ; sonuç|toplam; bu nedenle|dolayısıyla|yani; '?[dt][iıuü]r
id; jawaban(?:nya)?; adalah|ialah|yaitu; hasil(?:nya)?|total; jadi|maka|oleh karena itu
vi; đáp án|đáp số|câu trả lời|trả lời; là; kết quả|tổng(?: cộng)?; vậy|do đó|vì vậy
sw; jibu|jawabu; ni; matokeo|jumla; kwa hiyo|hivyo|kwa hivyo
th; คำตอบ; คือ|เท่ากับ|เป็น; ผลลัพธ์|รวม; ดังนั้น|เพราะฉะนั้น
hi; उत्तर|जवाब; है|हैं; परिणाम|कुल; अतः|इसलिए|तो; है|हैं|होगा
bn; উত্তর; হল|হলো|হচ্ছে|হবে; ফলাফল|মোট; সুতরাং|তাই|অতএব; হয়|হবে
te; సమాధానం|జవాబు; అనేది; ఫలితం|మొత్తం; కాబట్టి|అందువల్ల; అవుతుంది|ఉంటుంది
ta; விடை|பதில்; என்பது; முடிவு|மொத்தம்; எனவே|ஆகவே; ஆகும்
ar; الجواب|الإجابة|الاجابة; هو|هي|تساوي|يساوي; النتيجة|المجموع|الحل; إذن|لذلك|وبالتالي
fa; پاسخ|جواب; برابر(?: با)?|عبارت است از; نتیجه|مجموع; بنابراین|پس; است|ہے
he; תשובה|התשובה; היא|הוא; תוצאה|התוצאה|סך הכל; לכן|ולכן
"""
_ROWS = [[cell.strip() for cell in line.split(";")] for line in _TABLE.strip().splitlines()]
LANGUAGES = {name: Language(*cells) for name, *cells in _ROWS}
LATIN = r"A-Za-zÀ-ɏͰ-ӿ"  # of scripts whose words stand apart


def _words(column: str) -> str:
    """Return the pattern of all words of a column, the longest first."""
    words = {word for row in LANGUAGES.values() for word in getattr(row, column).split("|") if word}
    listed = "|".join(sorted(words, key=lambda word: (-len(word), word)))
    return rf"(?<![{LATIN}])(?:{listed})(?![{LATIN}])"


# Decoration that the view leaves: LaTeX's braces, quotation marks of JSON, a remark in brackets.
_GAP = r"[\s}\]\"'`|>]*+"
_FINAL = (
    r"(?:\s*(?:finale?|finală|correct[ae]|akhir(?:nya)?|cuối cùng|końcowa|la mwisho|สุดท้าย|النهائية|نهایی|ה?סופית))?"
)
_NOTE = r"(?:\s*\([^()\n]{1,40}\))?(?:,[^,.\n0-9]{1,40},)?"
_OF = r"(?:\s+(?:to|for|of|in|that|I|we)\s[^.:=\n\\$]{1,60}?)?(?<=\S)"
_VERBS = (
    r"(?:is|are|equals|becomes|(?:comes|works|turns) (?:out )?(?:to|at)(?: be)?|(?:should|would|must|will|to) be)\b"
)
_CHOICE = r"\(?(?-i:[A-J])\b"
# The value of a heading is all of its line.
_BELOW = rf"[ \t]*+\n\s*+(?=\$|\\[(\[]|(?:[^\sA-Za-z]{{0,40}}[0-9][^\sA-Za-z]{{0,40}}|{_CHOICE}[).]?)[ \t]*+(?:\n|\Z))"
# Without a link the value is a number, a formula or a choice that ends its sentence.
CLOSED_VALUE = (
    rf"(?=(?:[-−+]?[$€£¥]?[0-9]|\$|\\\(|{_CHOICE})(?:[^.。।!！۔\n]|\.(?=[0-9])){{0,60}}+[.。।!！۔]?(?:\s|\Z))"
)
ENGLISH = re.compile(
    r"(?:(?<![A-Za-z/])answers?|(?:(?<=correct )|(?<=right )|(?<=best ))(?:option|choice))"
    rf"(?:{_OF}{_NOTE}[\"'`}}]*(?:\s++{_VERBS}\s*[:,]?|\s*(?:[:=—–→⇒]|[-=]{{1,2}}>)|\s+-(?=\s+[-$(]?[0-9])|{_BELOW})"
    r"|\s*[:=]|\|>)\s*+",
    re.IGNORECASE,
)
_FOREIGN_LINK = rf"(?:\s*(?:{_words('link')})\s*:?|\s*[:=—–])"
FOREIGN = re.compile(rf"{_words('answer')}{_FINAL}{_NOTE}{_GAP}(?:{_FOREIGN_LINK}|{CLOSED_VALUE})\s*+", re.IGNORECASE)
# What a text with an announcement contains: each word up to a character that may be missing or another.
_BEGUN = {re.split(r".\?|[(\[]", word)[0] for row in LANGUAGES.values() for word in row.answer.split("|")}
FOREIGN_WORDS = tuple(word for word in _BEGUN if not any(word != other and word.startswith(other) for other in _BEGUN))
ASCII_WORDS = tuple(word for word in FOREIGN_WORDS if word.isascii())
_LETTERS = {max(word) for word in FOREIGN_WORDS if not word.isascii()}  # a text without them has only ASCII's words
FOREIGN_LETTER = re.compile(f"[{''.join(sorted(letter + letter.upper() for letter in _LETTERS))}]")

# `Result: 18` and, in other languages, `El resultado es 18` at the beginning of the last line.
_ENGLISH_RESULT = r"(?:final |correct )?(?:result|value|solution|conclusion|total|output|final)|ans"
_SO = rf"(?:(?:so|thus|hence|therefore|{'|'.join(row.so for row in LANGUAGES.values() if row.so)})[\s,、:]*)"
RESULT = re.compile(
    rf"[\W_]*+(?:A:|Ans\.|{_SO}?(?:(?:the|el|la|le|das|die|der|o|il|het|il) )?"
    rf"(?:(?:{_ENGLISH_RESULT})\s*[:=)]|(?:final )?answer\s{CLOSED_VALUE}"
    rf"|(?:{_words('result')}){_GAP}(?:{_FOREIGN_LINK}|{CLOSED_VALUE})))\s*+(?=\S)",
    re.IGNORECASE,
)
# `Thus 18`, `따라서 18개입니다`: a conclusion and nothing but its value.
CONCLUDED = re.compile(
    rf"[\W_]*+(?:{_SO}|I(?:'d| would|'ll)? (?:choose|select|go with) |(?=option |choice ))(?:(?:option|choice) )?"
    rf"(?=[-−+]?[$€£¥]?[0-9]|\$|\\\(|{_CHOICE}(?![-'’]))",
    re.IGNORECASE,
)
_CLOSING = "|".join(row.closing for row in LANGUAGES.values() if row.closing)
CLOSING = re.compile(rf"(?<=[\w$)}}])\s*(?:{_CLOSING})\s*\Z")
REST = re.compile(rf"[\s$)]*+(?:{_CLOSING})?[\s.。।!！۔$)]*+\Z")
# `C is the correct answer`, `We get 18 as the answer`: what stands before "answer".
BEFORE = re.compile(
    r"((?<![A-Za-z0-9.])[A-J]|\([A-J]\)|\$[^$\n]{1,60}\$|(?<![\w.])[-−]?[$€£]?[0-9][0-9,./]*)\)?"
    r"\s+(?:is|as|must be)\s+(?:the|our|my)\s+(?:(?:final|correct|right|best)\s+)?\Z"
)
CORRECT = re.compile(
    r"(?:option|choice)\s+\(?((?-i:[A-J]))\)?\s+(?:is|must be)\s+(?:the\s+)?(?:correct|right|best|true)\b",
    re.IGNORECASE,
)
# What stands between a link and a value, and what is said after one.
HEAD = re.compile(
    r"(?:(?:that|actually|exactly|precisely|approximately|roughly|about|simply|just|then|therefore|thus|hence|clearly|also"
    r"|found to be|equal to|given by|as follows|a total of|the (?:value|number|total|sum)(?: of)?|option|choice|letter"
    r"|\\text(?:bf)?\{|\{|[:=~≈,]|\\approx)\s*)+(?=[-−+$€£\\(\[{0-9]|(?-i:[A-HJ])\b)",
    re.IGNORECASE,
)
REMARK = re.compile(
    r"(?<=\s)(?:because|since|which|where|as|so)\s|(?<=[\w)$}])[\s,]\s*+(?:I\s+(?:think|hope|believe|guess|am)\b|QED\b"
    r"|[-–—→⇒]+>?\s+(?=[A-Za-z]{3})(?!(?:sin|cos|tan|log|exp|sqrt|max|min|arc)\b)"
    r"|\((?:(?:since|because|as|see|from|by|rounded|i\.e|e\.g)\b|(?!base|mod)[a-z]{3,}(?:[- ][a-z]+){0,2}\)"
    r"(?<!(?:lion|sand|cent)\)))|\[[0-9]{1,2}\]|\$?\\(?:blacksquare|square|checkmark|qed|Box)\b"
    r"|(?:remains?|left|in total|altogether|overall|and (?:we|this|that|so|it|I))\b)"
)
# A sentence in Chinese or Japanese that has one number: `答：他一共有18个苹果`, as solutions of MGSM's questions end.
IN_SENTENCE = re.compile(r"[^\W\d_a-zA-Z][^0-9]{0,40}[有是为要于得共剩了到约は]\s*([-−]?[0-9][0-9.,/]*)[^0-9]*")
