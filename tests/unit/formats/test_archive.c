/* SPDX-License-Identifier: Apache-2.0 */
/* test_archive.c - zip archives and pickles, honest and lying */
#include "formats/parse/pickle.h"
#include "formats/parse/zip.h"
#include "tests/unit/fixture.h"

/* ---- archives ----------------------------------------------------------- */

struct bytes {
	uint8_t b[1024];
	size_t n;
};

static void put(struct bytes *out, const void *from, size_t n)
{
	assert_true(out->n + n <= sizeof(out->b));
	memcpy(out->b + out->n, from, n);
	out->n += n;
}

static void number(struct bytes *out, uint64_t value, int nbytes)
{
	for (int i = 0; i < nbytes; i++, value >>= 8)
		put(out, &(uint8_t){ value & 0xff }, 1);
}

/* How a writer goes about it. */
enum { LATE = 1, WIDE = 2, COMMENT = 4 };

/* Places of records, for those who lie. */
struct places {
	size_t local[2], data[2], behind[2], central[2], end64, locator, end;
};

static void local_header(struct bytes *out, const char *name, size_t size, int how)
{
	uint64_t here = how & LATE ? 0 : size;

	number(out, 0x04034b50, 4);
	number(out, 20, 2);
	number(out, how & LATE ? 8 : 0, 2);
	number(out, 0, 6);
	number(out, how & LATE ? 0 : 0xabcd, 4);
	number(out, how & WIDE ? UINT32_MAX : here, 4);
	number(out, how & WIDE ? UINT32_MAX : here, 4);
	number(out, strlen(name), 2);
	number(out, how & WIDE ? 20 : 0, 2);
	put(out, name, strlen(name));
	if (how & WIDE) {
		number(out, 1, 2);
		number(out, 16, 2);
		number(out, here, 8);
		number(out, here, 8);
	}
}

static void central_header(struct bytes *out, const char *name, size_t size, size_t at,
			   int how)
{
	number(out, 0x02014b50, 4);
	number(out, 20, 2);
	number(out, 20, 2);
	number(out, how & LATE ? 8 : 0, 2);
	number(out, 0, 6);
	number(out, 0xabcd, 4);
	number(out, how & WIDE ? UINT32_MAX : size, 4);
	number(out, how & WIDE ? UINT32_MAX : size, 4);
	number(out, strlen(name), 2);
	number(out, how & WIDE ? 28 : 0, 2);
	number(out, 0, 10);
	number(out, how & WIDE ? UINT32_MAX : at, 4);
	put(out, name, strlen(name));
	if (how & WIDE) {
		number(out, 1, 2);
		number(out, 24, 2);
		number(out, size, 8);
		number(out, size, 8);
		number(out, at, 8);
	}
}

static void the_end(struct bytes *out, struct places *p, size_t nbytes, size_t at,
		    int how)
{
	p->end64 = out->n;
	if (how & WIDE) {
		number(out, 0x06064b50, 4);
		number(out, 44, 8);
		number(out, 0, 12);
		number(out, 2, 8);
		number(out, 2, 8);
		number(out, nbytes, 8);
		number(out, at, 8);
		p->locator = out->n;
		number(out, 0x07064b50, 4);
		number(out, 0, 4);
		number(out, p->end64, 8);
		number(out, 1, 4);
	}
	p->end = out->n;
	number(out, 0x06054b50, 4);
	number(out, 0, 4);
	number(out, how & WIDE ? UINT16_MAX : 2, 2);
	number(out, how & WIDE ? UINT16_MAX : 2, 2);
	number(out, how & WIDE ? UINT32_MAX : nbytes, 4);
	number(out, how & WIDE ? UINT32_MAX : at, 4);
	number(out, how & COMMENT ? 3 : 0, 2);
	if (how & COMMENT)
		put(out, "hey", 3);
}

/* Two members, a.npy and b.npy, of five bytes and three. */
static void archive(struct bytes *out, struct places *p, int how)
{
	static const char *const names[] = { "a.npy", "b.npy" };
	static const size_t sizes[] = { 5, 3 };
	size_t at;

	out->n = 0;
	for (int i = 0; i < 2; i++) {
		p->local[i] = out->n;
		local_header(out, names[i], sizes[i], how);
		p->data[i] = out->n;
		put(out, i ? "xyz" : "hello", sizes[i]);
		p->behind[i] = out->n;
		if (how & LATE) {
			number(out, 0x08074b50, 4);
			number(out, 0xabcd, 4);
			number(out, sizes[i], how & WIDE ? 8 : 4);
			number(out, sizes[i], how & WIDE ? 8 : 4);
		}
	}
	at = out->n;
	for (int i = 0; i < 2; i++) {
		p->central[i] = out->n;
		central_header(out, names[i], sizes[i], p->local[i], how);
	}
	the_end(out, p, out->n - at, at, how);
}

static enum kvt_status read_archive(struct kvt_zip *zip, const char *path,
				    const struct bytes *in, size_t n,
				    struct kvt_error *err)
{
	struct kvt_files files = { 0 };
	enum kvt_status status;
	int file;

	write_file(path, in->b, n);
	ok(kvt_files_open(&files, &file, path, err));
	status = kvt_zip_read(zip, &files.file[file], err);
	kvt_files_close(&files);
	unlink(path);
	return status;
}

static void test_honest(void **state)
{
	struct bytes in;
	struct places p;
	struct kvt_zip zip;

	for (int how = 0; how < 8; how++) {
		archive(&in, &p, how);
		ok(read_archive(&zip, join(*state, "a").s, &in, in.n, &why));
		assert_int_equal(zip.count, 2);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(zip.member[i].data, p.data[i]);
			assert_int_equal(zip.member[i].nbytes, i ? 3 : 5);
		}
		assert_ptr_equal(kvt_zip_find(&zip, "b.npy"), &zip.member[1]);
		assert_null(kvt_zip_find(&zip, "b"));
		kvt_zip_free(&zip);
	}
}

/* Cut anywhere, or with a byte too many, it is none. */
static void test_cut_archive(void **state)
{
	struct bytes in;
	struct places p;
	struct kvt_zip zip;

	for (int how = 0; how < 8; how++) {
		archive(&in, &p, how);
		for (size_t n = 0; n < in.n; n++)
			expect(read_archive(&zip, join(*state, "a").s, &in, n, &why),
			       KVT_BAD_INPUT, "");
		number(&in, 0, 1);
		expect(read_archive(&zip, join(*state, "a").s, &in, in.n, &why),
		       KVT_BAD_INPUT, "");
	}
}

static struct lie {
	const char *what;
	int how;
	size_t record;			/* of struct places */
	size_t offset;
	int nbytes;
	uint64_t value;
	enum kvt_status status;
	const char *part;
} lies[] = {
#define AT(field) offsetof(struct places, field)
	{ "deflated", 0, AT(central[0]), 10, 2, 8, KVT_UNSUPPORTED, "savez" },
	{ "another method", 0, AT(central[0]), 10, 2, 12, KVT_UNSUPPORTED, "method" },
	{ "encrypted", 0, AT(central[0]), 8, 2, 1, KVT_UNSUPPORTED, "encrypted" },
	{ "patched data", 0, AT(central[0]), 8, 2, 32, KVT_UNSUPPORTED, "flags" },
	{ "in parts", 0, AT(end), 4, 2, 1, KVT_UNSUPPORTED, "parts" },
	{ "a member in another part", 0, AT(central[0]), 34, 2, 1, KVT_UNSUPPORTED,
	  "parts" },
	{ "three members", 0, AT(end), 10, 2, 3, KVT_BAD_INPUT, "differ" },
	{ "one member", WIDE, AT(end64), 32, 8, 1, KVT_BAD_INPUT, "zip64" },
	{ "directory too long", 0, AT(end), 12, 4, 9999, KVT_BAD_INPUT, "recorded" },
	{ "directory elsewhere", 0, AT(end), 16, 4, 3, KVT_BAD_INPUT, "recorded" },
	{ "directory of no size", 0, AT(end), 12, 4, 0, KVT_BAD_INPUT, "recorded" },
	{ "no entry", 0, AT(central[1]), 0, 4, 7, KVT_BAD_INPUT, "no entry" },
	{ "name too long", 0, AT(central[1]), 28, 2, 0xffff, KVT_BAD_INPUT, "beyond" },
	{ "no name", 0, AT(central[1]), 28, 2, 0, KVT_BAD_INPUT, "name" },
	{ "control character", 0, AT(central[1]), 46, 1, 7, KVT_BAD_INPUT, "control" },
	{ "one name twice", 0, AT(central[1]), 46, 1, 'a', KVT_BAD_INPUT, "differ" },
	{ "larger than stored", 0, AT(central[0]), 24, 4, 6, KVT_BAD_INPUT, "stored" },
	{ "offset beyond", 0, AT(central[0]), 42, 4, 9999, KVT_BAD_INPUT, "after" },
	{ "offset of another", 0, AT(central[0]), 42, 4, 38, KVT_BAD_INPUT, "differ" },
	{ "header elsewhere", 0, AT(local[0]), 0, 4, 1, KVT_BAD_INPUT, "differ" },
	{ "other name there", 0, AT(local[0]), 30, 1, 'c', KVT_BAD_INPUT, "differ" },
	{ "other size there", 0, AT(local[0]), 22, 4, 4, KVT_BAD_INPUT, "size" },
	{ "other checksum there", 0, AT(local[0]), 14, 4, 1, KVT_BAD_INPUT, "differ" },
	{ "other method there", 0, AT(local[0]), 8, 2, 8, KVT_BAD_INPUT, "differ" },
	{ "data pushed over the next member", 0, AT(local[0]), 28, 2, 3, KVT_BAD_INPUT,
	  "overlap" },
	{ "data pushed out", 0, AT(local[1]), 28, 2, 0xffff, KVT_BAD_INPUT, "beyond" },
	{ "descriptor of another size", LATE, AT(behind[0]), 8, 4, 4, KVT_BAD_INPUT,
	  "descriptor" },
	{ "no descriptor", LATE, AT(behind[0]), 0, 4, 4, KVT_BAD_INPUT, "descriptor" },
	{ "zip64 size of 2^63", WIDE, AT(central[0]), 46 + 5 + 4, 8, UINT64_MAX,
	  KVT_BAD_INPUT, "stored" },
	{ "zip64 offset of 2^63", WIDE, AT(central[0]), 46 + 5 + 20, 8, UINT64_MAX,
	  KVT_BAD_INPUT, "after" },
	{ "zip64 field too short", WIDE, AT(central[0]), 46 + 5 + 2, 2, 8, KVT_BAD_INPUT,
	  "short" },
	{ "zip64 field too long", WIDE, AT(central[0]), 46 + 5 + 2, 2, 99, KVT_BAD_INPUT,
	  "long" },
	{ "no zip64 field", WIDE, AT(central[0]), 46 + 5, 2, 2, KVT_BAD_INPUT,
	  "no zip64" },
	{ "zip64 record of 2^63 members", WIDE, AT(end64), 24, 8, UINT64_MAX,
	  KVT_BAD_INPUT, "zip64" },
	{ "zip64 directory of 2^63 bytes", WIDE, AT(end64), 40, 8, UINT64_MAX,
	  KVT_BAD_INPUT, "recorded" },
	{ "zip64 locator points elsewhere", WIDE, AT(locator), 8, 8, 0, KVT_BAD_INPUT,
	  "elsewhere" },
	{ "zip64 in parts", WIDE, AT(locator), 16, 4, 2, KVT_UNSUPPORTED, "parts" },
#undef AT
};

static void test_lie(void **state)
{
	const struct lie *lie = *state;
	const char *folder = new_folder();
	struct bytes in;
	struct places p;
	struct kvt_zip zip;
	size_t record;

	archive(&in, &p, lie->how);
	memcpy(&record, (char *)&p + lie->record, sizeof(record));
	for (int i = 0; i < lie->nbytes; i++)
		in.b[record + lie->offset + (size_t)i] = (uint8_t)(lie->value >> 8 * i);
	expect(read_archive(&zip, join(folder, "a").s, &in, in.n, &why), lie->status,
	       lie->part);
}

/* Any byte changed: read, or refused with a sentence. */
static void test_changed_archive(void **state)
{
	struct bytes in;
	struct places p;
	struct kvt_zip zip;

	for (int how = 0; how < 8; how++) {
		archive(&in, &p, how);
		for (size_t i = 0; i < in.n; i++) {
			why.text[0] = '\0';
			in.b[i] ^= 0x81;
			if (read_archive(&zip, join(*state, "a").s, &in, in.n, &why))
				assert_true(why.text[0]);
			else
				kvt_zip_free(&zip);
			in.b[i] ^= 0x81;
		}
	}
}

/* ---- pickles ------------------------------------------------------------ */

#define P "\x80\x02"
#define STORAGE "X\7\0\0\0storagectorch\nHalfStorage\nX\1\0\0\0" "0X\3\0\0\0cpuK\x18tQ"
#define HOOKS "ccollections\nOrderedDict\n)R"
/* a tensor of 2 x 3 x 4 halves */
#define TENSOR(offset, size, stride) \
	"ctorch._utils\n_rebuild_tensor_v2\n((" STORAGE offset size stride "\x89" HOOKS "tR"
#define SIZE "K\2K\3K\4\x87"
#define STRIDE "K\x0cK\4K\1\x87"
#define WHOLE TENSOR("K\0", SIZE, STRIDE)
#define CACHE "ctransformers.cache_utils\nDynamicCache\n"
#define TEXT(s) s, sizeof(s) - 1

static struct pickle_case {
	const char *what, *bytes;
	size_t nbytes;
	enum kvt_status status;
	const char *part;		/* of the message; or the kind of the root */
} pickles[] = {
	{ "a tensor", TEXT(P WHOLE "."), 0, "tensor" },
	{ "a dict", TEXT(P "}q\0X\1\0\0\0a" WHOLE "s."), 0, "dict" },
	{ "a dict in one go", TEXT(P "}(X\1\0\0\0a" WHOLE "X\1\0\0\0bh\0u."),
	  KVT_BAD_INPUT, "not put" },
	{ "a list", TEXT(P "]q\0(" WHOLE "q\1h\1e."), 0, "list" },
	{ "a list that holds itself", TEXT(P "]q\0h\0a."), 0, "list" },
	{ "a tuple of three", TEXT(P "NNN\x87."), 0, "tuple" },
	{ "an OrderedDict", TEXT(P HOOKS "."), 0, "dict" },
	{ "a long integer", TEXT(P "\x8a\5\0\0\0\0\1."), 0, "int" },
	{ "strides swapped", TEXT(P TENSOR("K\0", SIZE, "K\4K\x08K\1\x87") "."), 0,
	  "strided" },
	{ "a cache of transformers", TEXT(P CACHE ")\x81}b."), 0, "object" },
	{ "a part of a storage", TEXT(P TENSOR("K\x0c", "K\1K\3K\4\x87", STRIDE) "."), 0,
	  "tensor" },

	{ "a system call", TEXT(P "cposix\nsystem\nX\4\0\0\0true\x85R."), KVT_UNSUPPORTED,
	  "posix.system" },
	{ "eval", TEXT(P "c__builtin__\neval\nX\1\0\0\0" "1\x85R."), KVT_UNSUPPORTED,
	  "__builtin__.eval" },
	{ "a class of torch", TEXT(P "ctorch.nn\nModule\n)R."), KVT_UNSUPPORTED,
	  "torch.nn.Module" },
	{ "a name that only begins as one of ours", TEXT(P "ctorch\nHalfStorageX\n."),
	  KVT_UNSUPPORTED, "HalfStorageX" },
	{ "an instance", TEXT(P "(icposix\nsystem\n."), KVT_UNSUPPORTED, "0x69" },
	{ "an object of no class", TEXT(P "ccollections\nOrderedDict\n)\x81."),
	  KVT_BAD_INPUT, "an object of no class" },
	{ "an object with arguments", TEXT(P CACHE "K\1\x85\x81."), KVT_BAD_INPUT,
	  "an object of no class" },
	{ "attributes of a dict", TEXT(P "}}b."), KVT_UNSUPPORTED, "attributes of" },
	{ "attributes twice", TEXT(P CACHE ")\x81}b}b."), KVT_UNSUPPORTED,
	  "attributes of" },
	{ "an extension", TEXT(P "\x82\1."), KVT_UNSUPPORTED, "0x82" },
	{ "a name off the stack", TEXT(P "X\1\0\0\0aX\1\0\0\0b\x93."), KVT_UNSUPPORTED,
	  "0x93" },
	{ "a persistent id of text", TEXT(P "P1\n."), KVT_UNSUPPORTED, "0x50" },
	{ "protocol 4", TEXT("\x80\4N."), KVT_UNSUPPORTED, "protocol 4" },
	{ "an OrderedDict of something",
	  TEXT(P "ccollections\nOrderedDict\nN\x85R."), KVT_UNSUPPORTED, "arguments" },
	{ "a call of a storage", TEXT(P "ctorch\nHalfStorage\n)R."), KVT_BAD_INPUT,
	  "no function" },
	{ "a call of a dict", TEXT(P "})R."), KVT_BAD_INPUT, "no function" },
	{ "an integer of 9 bytes", TEXT(P "\x8a\t123456789."), KVT_UNSUPPORTED,
	  "9 bytes" },

	{ "nothing", TEXT(""), KVT_BAD_INPUT, "no end" },
	{ "no object", TEXT(P "."), KVT_BAD_INPUT, "more or less" },
	{ "two objects", TEXT(P "NN."), KVT_BAD_INPUT, "more or less" },
	{ "two pickles", TEXT(P "N.N."), KVT_BAD_INPUT, "more than one" },
	{ "a name alone", TEXT(P "ctorch\nHalfStorage\n."), KVT_BAD_INPUT,
	  "more or less" },
	{ "a mark alone", TEXT(P "(."), KVT_BAD_INPUT, "more or less" },
	{ "no mark", TEXT(P "Nt."), KVT_BAD_INPUT, "tuple" },
	{ "an odd dict", TEXT(P "}(Nu."), KVT_BAD_INPUT, "without a value" },
	{ "entries of a tuple", TEXT(P ")(Ne."), KVT_BAD_INPUT, "no list" },
	{ "a string beyond the end", TEXT(P "X\xff\xff\xff\xff" "a."), KVT_BAD_INPUT,
	  "cut off" },
	{ "a name without an end", TEXT(P "ctorch"), KVT_BAD_INPUT, "cut off" },
	{ "a memo of nothing", TEXT(P "q\0N."), KVT_BAD_INPUT, "memo" },
	{ "a memo far out", TEXT(P "Nr\xff\xff\xff\x7f."), KVT_BAD_INPUT, "memo" },
	{ "a storage of four", TEXT(P "NNNN(NNNNtQ."), KVT_BAD_INPUT, "no storage" },
	{ "a storage of -1 elements",
	  TEXT(P "(X\7\0\0\0storagectorch\nHalfStorage\nX\1\0\0\0" "0X\3\0\0\0cpu"
	       "J\xff\xff\xff\xfftQ."), KVT_BAD_INPUT, "no storage" },

	{ "a tensor beyond its storage", TEXT(P TENSOR("K\1", SIZE, STRIDE) "."),
	  KVT_BAD_INPUT, "element 24" },
	{ "an offset beyond", TEXT(P TENSOR("K\xff", "K\0K\0K\0\x87", STRIDE) "."),
	  KVT_BAD_INPUT, "element" },
	{ "a negative offset", TEXT(P TENSOR("J\xff\xff\xff\xff", SIZE, STRIDE) "."),
	  KVT_BAD_INPUT, "arguments" },
	{ "a negative size",
	  TEXT(P TENSOR("K\0", "J\xff\xff\xff\xffK\3K\4\x87", STRIDE) "."),
	  KVT_BAD_INPUT, "natural" },
	{ "a size beyond 2^63",
	  TEXT(P TENSOR("K\0", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\3K\4\x87",
			STRIDE) "."), KVT_BAD_INPUT, "2^63" },
	{ "a tensor spread out by 0",
	  TEXT(P TENSOR("K\0", SIZE, "K\0K\4K\1\x87") "."), KVT_UNSUPPORTED, "share" },
	{ "a sliding window", TEXT(P TENSOR("K\0", SIZE, "K\1K\4K\1\x87") "."),
	  KVT_UNSUPPORTED, "share" },
	{ "as many strides as sizes", TEXT(P TENSOR("K\0", SIZE, "K\4\x85") "."),
	  KVT_BAD_INPUT, "arguments" },
	{ "a tensor of no storage",
	  TEXT(P "ctorch._utils\n_rebuild_tensor_v2\n(NK\0" SIZE STRIDE "\x89" HOOKS
	       "tR."), KVT_BAD_INPUT, "arguments" },
};

static enum kvt_status read_all(char kind[16], const void *bytes, size_t n,
				struct kvt_error *err)
{
	static const char *const kinds[] = { "none", "bool", "int", "string", "tuple",
					     "list", "dict", "object", "storage",
					     "tensor", "global", "mark" };
	/* its own room, so that reading beyond it is seen */
	uint8_t *copy = room(n + !n);
	struct kvt_pickle_tensor t;
	struct kvt_pickle pickle;
	enum kvt_status status;

	memcpy(copy, bytes, n);
	if (!(status = kvt_pickle_read(&pickle, copy, (int64_t)n, "x", err))) {
		const struct kvt_pickle_node *root = &pickle.node[pickle.root];

		snprintf(kind, 16, "%s", kinds[root->kind]);
		for (int32_t i = 0; !status && i < pickle.count; i++)
			if (pickle.node[i].kind == KVT_PICKLE_TENSOR) {
				status = kvt_pickle_tensor(&t, &pickle, i, "x", err);
				if (!status && t.strided)
					strcpy(kind, "strided");
			}
		kvt_pickle_free(&pickle);
	}
	return status;
}

static void test_pickle(void **state)
{
	const struct pickle_case *c = *state;
	char kind[16] = "";

	expect(read_all(kind, c->bytes, c->nbytes, &why), c->status, c->part);
	if (!c->status)
		assert_string_equal(kind, c->part);
}

static void test_cut_pickle(void)
{
	for (int i = 0; i < LENGTH(pickles); i++)
		for (size_t n = 0; !pickles[i].status && n < pickles[i].nbytes; n++) {
			char kind[16];

			why.text[0] = '\0';
			assert_true(read_all(kind, pickles[i].bytes, n, &why) != KVT_OK);
			assert_true(why.text[0]);
		}
}

/* Instructions that cost one byte each make a bounded tree, whatever they are. */
static void test_bounds(void)
{
	static const char repeated[] = "(N)]}\x88";
	size_t n = 3 << 20;
	char *bytes = room(n);

	for (size_t i = 0; i < sizeof(repeated) - 1; i++) {
		char kind[16];

		memset(bytes, repeated[i], n);
		expect(read_all(kind, bytes, n, &why), KVT_UNSUPPORTED, "deeper");
	}
}

TESTS("archive",
	EACH(lies, test_lie), EACH(pickles, test_pickle), IN_FOLDER(test_honest),
	IN_FOLDER(test_cut_archive), IN_FOLDER(test_changed_archive),
	TEST(test_cut_pickle), TEST(test_bounds))
