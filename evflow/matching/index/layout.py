"""Where everything stands: the slots of the state, and the bytes of a list, a record, an element.

Kernels get the address of the state, an array of int64: addresses of the arenas, how full they are, a few
counts.

A **record** is a filter, in words of 4 bytes: 5 of header, an interval of keys for each element of its
signature (all lows, then all widths), then its exact constraints, 4 words each. It is named by the number of
its first word. In front of it stands the exact area, if it has one on the plane: x, y and reach, float64.

A **list** takes 64 bytes and holds records that one key leads to: a signature's own, a sharp constraint's, a
group's or a cell's. Its entries lie in a block of the entry arena:

* plain: the words of the records; a list of one has no block, its record stands in the list itself;
* columns: subscription, record, then for each element lows, widths, and keys that are excluded, so that 16
  filters are tested at once;
* located: x, y (z) and reach, then records; if it is long, columns as well. On the plane these are float32,
  and the reach is so large that no circle that holds a point is passed by; the record decides.

The **pool** holds filters that no list of their own would find: a *slot* says which record, and rows of bits
which slots may hold. A block of 1024 slots has a row of the slots in use, and for each *axis* a row of the
slots that do not constrain its element and one a bucket of its keys. A record in the pool has its signature
for its list.

An **element** is an attribute's name with the type that a constraint asks for; a **signature** is a set of
elements.
"""

from __future__ import annotations

# State: arenas are (address, used, capacity), in units of their own.
LISTS, LISTS_USED, LISTS_CAPACITY = 0, 1, 2  # 64 bytes
ENTRIES, ENTRIES_USED, ENTRIES_CAPACITY = 3, 4, 5  # 16 bytes
RECORDS, RECORDS_USED, RECORDS_CAPACITY = 6, 7, 8  # 4 bytes
FIRST, FIRST_USED, FIRST_CAPACITY = 9, 10, 11  # 4 bytes: the first record of a subscription
ELEMENTS, ELEMENTS_USED, ELEMENTS_CAPACITY = 12, 13, 14  # 40 bytes
DIRTY, DIRTY_USED, DIRTY_CAPACITY = 15, 16, 17  # 4 bytes: lists that wait to be settled
TABLE, TABLE_USED, TABLE_CAPACITY = 18, 19, 20  # 8 bytes: tag and list
BLOOM, BLOOM_USED, BLOOM_CAPACITY = 21, 22, 23  # 8 bytes
COUNTS, COUNTS_USED, COUNTS_CAPACITY = 24, 25, 26  # 4 bytes: small tables of fixed size
TALLY, TALLY_USED, TALLY_CAPACITY = 27, 28, 29  # 4 bytes: how many filters have a sharp constraint
SLOTS, SLOTS_USED, SLOTS_CAPACITY = 30, 31, 32  # 4 bytes: the record of a slot of the pool; the next free one
BITS, BITS_USED, BITS_CAPACITY = 33, 34, 35  # 128 bytes: rows of the pool
AXES, AXES_USED, AXES_CAPACITY = 36, 37, 38  # 528 bytes: elements that the pool has rows for, ascending
_LISTED = ("lists", "entries", "records", "first", "elements", "dirty", "table", "bloom", "counts", "tally")
ARENAS = (*_LISTED, "slots", "bits", "axes")
UNITS = (64, 16, 4, 4, 40, 4, 8, 8, 4, 4, 4, 128, 528)

DIMENSIONS = 40
FILTERS = 41
SUBSCRIPTIONS = 42
SEVERAL = 43  # subscriptions that have more than one filter
LOCATED_FILTERS = 44
SIGNATURES = 45
FREE_LIST = 46
SCRAP, SCRAP_END = 47, 48  # a large free block from which small ones are cut
TEXT_DATA, TEXT_OFFSETS = 49, 50
WANTED = 51  # what a kernel that returned FULL lacks: the arena, and how much of it
AMOUNT = 52
CONSTRAINTS = 53
COLLISIONS = 54  # 1 once two signatures had the same hash
DRAFT = 55  # working memory of changes
SEED = 56  # of the hashes of elements
BITS_GIVEN = 57  # elements that have been given a bit of masks
POOLED = 58  # 1 while weak filters stand in the pool
POOL_ROWS = 59  # rows of a block of the pool
POOL_FILTERS = 60
FREE_SLOT = 61  # the first free slot of the pool, and 1
STATE_SIZE = 64

# The counts: free records by size, free blocks by class, operands of patterns by kind and length.
FREE_RECORDS = 0  # 320
FREE_BLOCKS = 320  # 192
LENGTHS = 512  # 3 kinds of 64
COUNTS_SIZE = 704
LONGEST = 63  # bytes of the longest pattern that is looked up

TALLY_SIZE = 1 << 18

# A list.
L_KEY = 0
L_START = 8  # unit of its block, or its record if it has none
L_POOLED = 8  # of a signature while there is a pool: its filters in it
L_LENGTH = 12
L_CAPACITY = 16  # 0: no block
L_INFO = 20
L_OWNER = 24  # its signature; of a signature: filters in all its lists
L_NEXT = 28  # of a signature: its first group; of a cell: its group
L_REACH = 28  # of a group: float32, at least the largest radius
L_LOW, L_HIGH = 32, 36  # of a signature: the interval of keys that it is filed with
L_FILED = 40  # of a signature: the element that it is filed under, and 1
L_ELEMENTS = 44  # of a signature: five elements, or where they stand in the entries if there are more
INLINE = 5
L_CHAIN = 32  # of a group: the next one; of a cell: the next one of the group
L_RADIUS = 36  # of a group: the exponent of its largest radius
L_CELL = 40  # of a group: the exponent of its cells' size
L_COUNT = 44  # of a group: filters
L_LEVELLED = 48  # of a group: filters when the size of its cells was chosen
L_CELLS = 52  # of a group: its first cell
L_OLD = 56  # of a group: its first cell of the size before
L_SHARE = 60  # of a group: float32, the share of its filters that an event looks at
LIST_SIZE = 64

I_KIND = 7  # mask: what stands in the block, of located lists both if they are long
PLAIN, COLUMNS, LOCATED = 0, 1, 2
I_SIGNATURE = 8
I_GROUP = 16
I_CELL = 32
I_SHARP = 64
I_DIRTY = 128
I_VALUES = 256  # of a signature: has lists by equality or narrow range
I_PATTERNS = 512  # of a signature: has lists by prefix, suffix or substring
I_VALUES_LOCATED = 1024
I_PATTERNS_LOCATED = 2048
I_SPLIT = 4096  # of a signature: located filters stand in groups by radius
I_RANGES = 8192  # of columns: no filter excludes a key
I_ONCE = 16384  # of columns: none excludes two keys of one element
I_ELEMENTS = 16  # shift: how many elements the signature has

NONE = 0xFFFFFFFF
ANY_RADIUS = 2000  # exponent of the group that takes all radii
UNBOUNDED = 1100  # exponent of a group whose circles hold every place
ONE_CELL = 2000  # exponent of a cell that holds the whole space

# A record, in words.
R_LIST, R_POSITION, R_NEXT, R_SUBSCRIPTION, R_INFO, R_LOWS = range(6)
R_AREA = 6  # words in front of it
K_MASK = 0xFFF  # of the info: elements; then exact constraints
K_EXACT = 12
K_EXACT_MASK = 0xFFF
V_ALWAYS = 1 << 24  # the exact constraints count even where all intervals hold the keys
V_GAPS = 1 << 25  # they do if a number of the event is not one of the round ones
R_LOCATED = 1 << 26
R_POOLED = 1 << 27  # it stands in the pool: its list is its signature, its position its slot
V_MARK = 1 << 31  # in the subscription of a column: either of them

# An element.
E_HASH = 0  # its last seven bits say which bit of masks is its own
E_VALUES = 8  # filters with an equality or a narrow range
E_PATTERNS = 12  # filters with a pattern
E_USES = 16  # filters
E_START, E_LENGTH, E_CAPACITY = 20, 24, 28  # signatures filed under it
E_RANGES = 32  # bits: by buckets of which sizes narrow ranges are found
ELEMENT_SIZE = 40

# A block of filings, in bytes; a column stands as many times so far in as there is room for filings.
BANDS = 8
PAIRS = BANDS * (BANDS + 1) // 2
F_STARTS = 4 * BANDS  # where each pair of bands begins; before it the bounds of the bands
F_HEAD = 192  # of large blocks: bytes before the columns
F_LOWS, F_WIDTHS, F_LISTS = 12, 16, 20  # columns; before them three of masks
F_SIZE = 24
F_SORTED = 64  # filings that a block has room for if it is large
MASK_BITS = 96

# An axis of the pool. Its first row is that of events without the element; the others are buckets.
AXIS_ELEMENT, AXIS_ROW, AXIS_ROWS = 0, 4, 8
AXIS_LOWS, AXIS_WIDTHS = 16, 272
AXIS_SIZE = 528
MOST_ROWS = 64
LINE = 128  # bytes of a row of a block
IN_BLOCK = 1024  # slots of a block
CACHED = 1 << 15  # filters of a pool that caches hold, so that asking for them takes longer than it saves

NUMBERS, TEXTS, ANY = 0, 1, 2  # type of an element
NO_KEY = 0x80000000  # the key of no value

# What a kernel returns besides a count.
FULL = -1

# Signatures with more filters of their own than this are split.
SPLIT = 64
COLUMNS_FROM = 48
PLACED_FROM = 256  # entries of a located list that has columns too
LEVEL_FROM = 48

# The scratch of a thread that matches, an array of int64: buffers are (address, bytes).
M_VALUES, M_PROBES, M_LISTS, M_RECORDS, M_OUT, M_ATTRIBUTES, M_PATTERNS, M_DENSE, M_STAMPS = range(0, 18, 2)
BUFFERS = ("values", "probes", "lists", "records", "out", "attributes", "patterns", "dense", "stamps")
M_WANTED = 18  # the buffer that was too small
M_SERIAL = 19  # of the event that is reported
M_USED = 20  # ids in out
M_OFFSETS = 21  # address of the offsets of the events' ids
M_ROWS = 22  # addresses of the nine columns of the rows
M_VALUES_USED, M_PROBES_USED, M_LISTS_USED, M_RECORDS_USED = 32, 33, 34, 35
M_ATTRIBUTES_USED, M_PATTERNS_USED = 36, 37
M_FOUND = 38  # probes of signatures; those after them are of lists within
M_EARLY = 39  # ids of the first event of the block that are reported already
M_MISSING = 105  # three words: bits of masks that no element of the event has
M_REPORTED = 104  # the list that is reported before all others, or -1
M_SPENT = 40  # ns that weak filters in lists have taken, see ``Counts``
M_CANDIDATES, M_REACHED = 41, 42  # filters that rows of the pool leave; those whose elements an event has
M_ASKED = 43  # 1: M_REACHED is to be counted for one event
M_LINE = 48  # 16 words: what is left of a block of the pool
M_FIRST = 108  # the row of the first event of the block
M_KEPT = 112  # 64 records that are asked for
M_EVENTS = 176  # for each event of a block: first attribute, how many, first list, record, item of the pool
BLOCK = 16
"""Events that are matched in step."""
POOL_BLOCK = 512
"""Events that are matched in step while there is a pool, whose rows serve them all."""
SCRATCH_SIZE = 176 + 5 * POOL_BLOCK

ROWS_START, ROWS_NAME, ROWS_KIND, ROWS_NUMBER, ROWS_TEXT, ROWS_CHARS = range(6)
ROWS_CHAR_START, ROWS_CHAR_LENGTH, ROWS_PLACE = range(6, 9)

# An attribute of an event.
A_HASH, A_ELEMENT, A_KEY, A_ROW, A_PATTERNS, A_PATTERN_COUNT = 0, 8, 12, 16, 20, 24
ATTRIBUTE_SIZE = 32

# The values of an event for a signature: keys, then rows, in multiples of eight.
X_EVENT, X_LIST, X_COUNT, X_GAPS, X_KEYS = 0, 4, 8, 12, 16

FEW = 256  # subscriptions that one may hope to report before all lists are read
NARROW = 10  # attributes of an event whose subsets may be looked for
SHORT = 64  # entries of a list that are asked for before any is tested

# What matching takes, in ns: a signature that an event has all elements of, and each of these; a filter in a
# short list, and in columns, which take up to four times that if they are in no cache.
NS_SIGNATURE, NS_NAME, NS_SHORT, NS_LONG = 50, 8, 15, 1
