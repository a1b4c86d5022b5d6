"""How many bare texts are read right: one text an encoding, language and length, without a byte order mark.

``python -m tests.bench.encodings [--wrong]`` reads texts of 60, 300 and 5,000 characters in each encoding that the
language is written in, and prints the share whose text comes out as it went in: a table by length, one by encoding,
and with ``--wrong`` a line for each other text. ``refused`` are those that are reported instead of being read wrongly.
German, English, Russian and Chinese come from the collections beside the project; of the other languages, and where
there are no collections, the paragraphs below are used, sentence by sentence in turn.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.errors import DocumentError
from sqlrag.ingest.readers.text import read_text
from sqlrag.normalize import normalize
from tests.bench.common import DATA, environment, markdown_table, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (60, 300, 5000)
TEXTS_OF_A_SIZE = 4

COLLECTIONS = {"de": "xquad_de", "ru": "xquad_ru", "zh": "xquad_zh", "en": "xquad_en"}

_UNICODE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")

ENCODINGS = {
    "en": ("cp1252", *_UNICODE),
    "de": ("cp1252", "iso8859_1", "cp850", "mac_roman", *_UNICODE),
    "fr": ("cp1252", "iso8859_1", "iso8859_15", "cp850", "mac_roman", "utf-16-le"),
    "es": ("cp1252", "iso8859_1", "cp850", "mac_roman"),
    "pt": ("cp1252", "iso8859_1", "cp850"),
    "it": ("cp1252", "iso8859_1"),
    "sv": ("cp1252", "iso8859_1", "cp850"),
    "pl": ("cp1250", "iso8859_2", "cp852", "utf-16-le"),
    "cs": ("cp1250", "iso8859_2", "cp852", "utf-16-be"),
    "hu": ("cp1250", "iso8859_2"),
    "tr": ("cp1254", "iso8859_9", "cp857", "utf-16-le"),
    "el": ("cp1253", "iso8859_7", "cp737", "utf-16-le"),
    "ru": ("cp1251", "koi8_r", "cp866", "iso8859_5", "mac_cyrillic", "cp855", *_UNICODE),
    "uk": ("cp1251", "koi8_u"),
    "bg": ("cp1251", "iso8859_5"),
    "ar": ("cp1256", "iso8859_6", "utf-16-le", "utf-16-be"),
    "he": ("cp1255", "iso8859_8", "utf-16-le"),
    "th": ("cp874", "tis_620", "utf-16-le", "utf-16-be"),
    "lt": ("cp1257",),
    "ja": ("cp932", "shift_jis", "euc_jp", "iso2022_jp", *_UNICODE),
    "ko": ("cp949", "euc_kr", "johab", "iso2022_kr", "utf-16-le", "utf-16-be"),
    "zh": ("gb18030", "gbk", "gb2312", "hz", *_UNICODE),
    "zh_hant": ("big5", "cp950", "utf-16-le"),
}

PARAGRAPHS = {
    "en": (
        "Check the pump’s pressure before you open the valve – it should read 3 bar. The café on the ground floor "
        "closes at six, so please take your “visitor” badge back to the desk. A naïve reader may skip this page; "
        "nobody else should. The report costs £20 and is sent as a PDF file within two days."
    ),
    "de": (
        "Prüfen Sie den Druck der Pumpe, bevor Sie das Ventil öffnen. Die Größe des Behälters hängt von der Menge "
        "ab, die täglich benötigt wird. Über Nacht läuft die Anlage nur mit halber Leistung. Schließen Sie die Tür, "
        "wenn Sie den Raum verlassen, und geben Sie den Schlüssel am Empfang zurück."
    ),
    "fr": (
        "Vérifiez la pression de la pompe avant d’ouvrir la vanne. L’été dernier, nous avons déjà remplacé le "
        "filtre à huile. La société prévoit de réduire ses dépenses d’énergie à partir de l’année prochaine. Où "
        "étiez-vous hier soir, et pourquoi n’êtes-vous pas venus dîner ? Le garçon a reçu une leçon sévère."
    ),
    "es": (
        "Compruebe la presión de la bomba antes de abrir la válvula. El niño comió piñas en España, ¿verdad? "
        "Mañana iremos a la montaña si no llueve. La compañía anunció que reducirá el consumo de energía en los "
        "próximos años. También habrá más información sobre el tamaño de los depósitos."
    ),
    "pt": (
        "Verifique a pressão da bomba antes de abrir a válvula. A manutenção não é difícil, mas exige atenção. As "
        "instruções estão na página três. Amanhã não haverá água quente até às dez horas. O coração da máquina é um "
        "motor elétrico de três cavalos, que não faz ruído."
    ),
    "it": (
        "Controllare la pressione della pompa prima di aprire la valvola. Perché la città è così rumorosa di notte? "
        "Più tardi andremo al caffè vicino all’università. La qualità dell’acqua è già stata verificata lunedì. Ciò "
        "non significa che tutto sarà pronto; la responsabilità è del cliente."
    ),
    "sv": (
        "Kontrollera trycket i pumpen innan du öppnar ventilen. På hösten blir nätterna längre och kallare. Vi åker "
        "till skärgården när båten är färdig. Frågor besvaras av vår kundtjänst mellan åtta och fem. Äpplen och "
        "päron växer bra även på öar i norra Östersjön."
    ),
    "pl": (
        "Sprawdź ciśnienie pompy, zanim otworzysz zawór. Zażółć gęślą jaźń to zdanie, w którym są wszystkie polskie "
        "litery. Książka leży na półce obok łóżka. Wczoraj wieczorem padał śnieg, więc wróciliśmy późno do domu. "
        "Źle się czuję, gdy nie śpię dłużej niż sześć godzin. Część urządzeń wyłączono."
    ),
    "cs": (
        "Zkontrolujte tlak čerpadla, než otevřete ventil. Příliš žluťoučký kůň úpěl ďábelské ódy. Žádná škoda není "
        "malá. Včera večer pršelo, a proto jsme přišli domů pozdě. Děti si hrály na hřišti vedle školy a pak šly na "
        "oběd. Některá zařízení byla vypnuta kvůli údržbě, řekl ředitel."
    ),
    "hu": (
        "Ellenőrizze a szivattyú nyomását, mielőtt kinyitja a szelepet. Az őszi esőzések után a folyó vízszintje "
        "gyorsan emelkedett. A gyűlés résztvevői közül többen kérdéseket tettek fel. Az idős nő a fűtőtest mellett "
        "ült és könyvet olvasott. Jövő héten új műszerek érkeznek a győri üzembe."
    ),
    "tr": (
        "Vanayı açmadan önce pompanın basıncını kontrol edin. Şişli'deki ışıklı tabelalar gece boyunca yanıyor. "
        "Çocuklar bahçede oynarken yağmur başladı. Öğretmen bugün sınıfa geç geldi, çünkü yollar çok kalabalıktı. "
        "İstanbul'un eski sokaklarında yürümek hoşuma gidiyor. Gelecek yıl yeni bir köprü yapılacağı söyleniyor."
    ),
    "el": (
        "Ελέγξτε την πίεση της αντλίας πριν ανοίξετε τη βαλβίδα. Χθες το βράδυ έβρεχε και γυρίσαμε αργά στο σπίτι. "
        "Η θάλασσα είναι ήρεμη το πρωί, αλλά το απόγευμα φυσάει δυνατός άνεμος. Το βιβλίο βρίσκεται πάνω στο "
        "τραπέζι δίπλα στο παράθυρο. Οι εργασίες θα διαρκέσουν περίπου δύο εβδομάδες."
    ),
    "ru": (
        "Проверьте давление насоса, прежде чем открыть клапан. Вчера вечером шёл дождь, и мы поздно вернулись "
        "домой. Книга лежит на столе у окна. Дети играли во дворе, а потом пошли обедать. Некоторые устройства были "
        "отключены на время ремонта, сообщил директор завода."
    ),
    "uk": (
        "Перевірте тиск насоса, перш ніж відкрити клапан. Учора ввечері йшов дощ, і ми пізно повернулися додому. "
        "Їжак живе під старою яблунею біля хати. Діти гралися на подвір'ї, а потім пішли обідати. Деякі пристрої "
        "було вимкнено на час ремонту, повідомив директор."
    ),
    "bg": (
        "Проверете налягането на помпата, преди да отворите клапана. Снощи валеше дъжд и се прибрахме късно. "
        "Книгата е на масата до прозореца. Децата играха на двора, а после отидоха да обядват. Някои уреди бяха "
        "изключени заради ремонта, съобщи директорът на завода."
    ),
    "ar": (
        "تحقق من ضغط المضخة قبل أن تفتح الصمام. هطل المطر مساء أمس فعدنا إلى البيت في وقت متأخر. الكتاب على "
        "الطاولة قرب النافذة. لعب الأطفال في الحديقة ثم ذهبوا لتناول الغداء. أعلنت الشركة أنها سوف تخفض استهلاك "
        "الطاقة في السنوات القادمة، وقال المدير إن العمل سيستمر أسبوعين."
    ),
    "he": (
        "בדקו את לחץ המשאבה לפני שתפתחו את השסתום. אתמול בערב ירד גשם וחזרנו הביתה מאוחר. הספר מונח על השולחן ליד "
        "החלון. הילדים שיחקו בחצר ואחר כך הלכו לאכול צהריים. החברה הודיעה שתקטין את צריכת האנרגיה בשנים הקרובות, "
        "והמנהל אמר שהעבודה תימשך שבועיים."
    ),
    "th": (
        "ตรวจสอบแรงดันของปั๊มก่อนเปิดวาล์ว เมื่อคืนนี้ฝนตกหนักเราจึงกลับบ้านช้า หนังสืออยู่บนโต๊ะข้างหน้าต่าง "
        "เด็กๆ เล่นอยู่ในสวนแล้วไปกินข้าวกลางวัน บริษัทประกาศว่าจะลดการใช้พลังงานในปีต่อๆ ไป "
        "ผู้จัดการกล่าวว่างานจะใช้เวลาประมาณสองสัปดาห์"
    ),
    "lt": (
        "Patikrinkite siurblio slėgį prieš atidarydami vožtuvą. Vakar vakare lijo, todėl grįžome namo vėlai. Knyga "
        "guli ant stalo prie lango. Vaikai žaidė kieme, o paskui nuėjo pietauti. Įmonė pranešė, kad ateinančiais "
        "metais mažins energijos sąnaudas. Šiandien ąžuolai jau žaliuoja."
    ),
    "ja": (
        "バルブを開ける前にポンプの圧力を確認してください。昨夜は雨が降ったので、家に帰るのが遅くなりました。"
        "本は窓のそばの机の上にあります。子どもたちは庭で遊んでから昼ごはんを食べに行きました。"
        "会社は来年から電力の使用量を減らすと発表しました。①部品を取り外し、②フィルターを交換します。"
        "工場長によると、作業は約二週間かかる見込みです。"
    ),
    "ko": (
        "밸브를 열기 전에 펌프의 압력을 확인하십시오. 어젯밤에 비가 와서 집에 늦게 돌아왔습니다. "
        "책은 창문 옆 책상 위에 있습니다. 아이들은 마당에서 놀다가 점심을 먹으러 갔습니다. "
        "회사는 내년부터 전력 사용량을 줄이겠다고 발표했습니다. 공장장은 작업이 약 이 주일 걸릴 것이라고 말했습니다."
    ),
    "zh": (
        "打开阀门之前，请检查水泵的压力。昨天晚上下雨，所以我们很晚才回家。书放在窗户旁边的桌子上。"
        "孩子们在院子里玩，然后去吃午饭。公司宣布从明年起减少用电量。厂长说，这项工作大约需要两个星期。"
    ),
    "zh_hant": (
        "打開閥門之前，請檢查水泵的壓力。昨天晚上下雨，所以我們很晚才回家。書放在窗戶旁邊的桌子上。"
        "孩子們在院子裡玩，然後去吃午飯。公司宣布從明年起減少用電量。廠長說，這項工作大約需要兩個星期。"
        "如果您有任何問題，請與我們的客戶服務中心聯絡。"
    ),
}


class Sample(NamedTuple):
    """A text and its bytes. ``text`` has only characters of the encoding."""

    language: str
    encoding: str
    size: int
    text: str
    data: bytes


def samples() -> Iterator[Sample]:
    """Yield the texts, without those of ASCII alone, which every encoding but UTF-16 shares."""
    for language, encodings in ENCODINGS.items():
        for size in SIZES:
            for text in _texts(language, size):
                for encoding in encodings:
                    data = text.encode(encoding, "ignore")
                    kept = data.decode(encoding)
                    if not kept.isascii() or encoding.startswith("utf"):
                        yield Sample(language, encoding, size, kept, data)


def outcome(sample: Sample) -> str:
    """Return "right", "refused", or what it was taken for."""
    try:
        document = read_text(sample.data, "bench.txt")
    except DocumentError:
        return "refused"
    return "right" if document.text == normalize(sample.text) else " ".join((*document.warnings, document.text[:50]))


def _texts(language: str, size: int) -> Iterator[str]:
    source = DATA / COLLECTIONS.get(language, "none") / "corpus.jsonl"
    if source.exists():
        paragraphs = [row["text"] for row in read_jsonl(source)]
        for i in range(TEXTS_OF_A_SIZE):
            yield "\n".join(paragraphs[i * 37 :])[:size]
        return
    words = PARAGRAPHS[language]
    for i in range(TEXTS_OF_A_SIZE):
        start = i * len(words) // TEXTS_OF_A_SIZE
        turned = words[start:] + " " + words[:start] + "\n"
        yield (turned * (size // len(turned) + 1))[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wrong", action="store_true", help="list the texts that are not read right")
    shown = parser.parse_args().wrong
    total: Counter[object] = Counter()
    right: Counter[object] = Counter()
    refused: Counter[object] = Counter()
    wrong, start = [], time.perf_counter()
    for sample in samples():
        found = outcome(sample)
        for key in (sample.size, sample.encoding, "all"):
            total[key] += 1
            right[key] += found == "right"
            refused[key] += found == "refused"
        if found != "right":
            wrong.append(f"{sample.language} {sample.encoding} {sample.size}: {found}")
    seconds = time.perf_counter() - start
    rows = [[str(k), str(total[k]), f"{right[k] / total[k]:.3f}", f"{refused[k] / total[k]:.3f}"] for k in total]
    print(environment())
    print(markdown_table(["characters or encoding", "texts", "right", "refused"], rows))
    print(f"{total['all'] / seconds:,.0f} texts a second")
    if shown:
        print(*wrong, sep="\n")


if __name__ == "__main__":
    main()
