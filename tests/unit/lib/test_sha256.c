/* SPDX-License-Identifier: Apache-2.0 */
/* test_sha256.c - HMAC-SHA-256 by the vectors of RFC 4231 */
#include "lib/hash/sha256.h"
#include "tests/unit/tests.h"

/* Cases 1 to 4, 6 and 7; 5 is a part of a digest, which nothing here uses. */
static const struct {
	const char *key;		/* repeated until there are nkey bytes */
	size_t nkey;
	const char *data;
	size_t n;
	const char *hmac;
} cases[] = {
	{ "\x0b", 20, "Hi There", 8,
	  "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
	{ "Jefe", 4, "what do ya want for nothing?", 28,
	  "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
	{ "\xaa", 20, "\xdd", 50,
	  "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
	{ "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13"
	  "\x14\x15\x16\x17\x18\x19", 25, "\xcd", 50,
	  "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
	{ "\xaa", 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
	  "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
	{ "\xaa", 131, "This is a test using a larger than block-size key and a larger "
	  "than block-size data. The key needs to be hashed before being used by the "
	  "HMAC algorithm.", 152,
	  "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
};

static void fill(uint8_t *out, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)text[i % strlen(text)];
}

static void test_hmac(void)
{
	for (size_t c = 0; c < LENGTH(cases); c++) {
		uint8_t key[160], data[160], mac[SHA256_BYTES];
		char text[2 * SHA256_BYTES + 1];

		fill(key, cases[c].key, cases[c].nkey);
		fill(data, cases[c].data, cases[c].n);
		kvt_hmac_sha256(mac, key, cases[c].nkey, data, cases[c].n);
		for (int i = 0; i < SHA256_BYTES; i++)
			snprintf(text + 2 * i, 3, "%02x", mac[i]);
		assert_string_equal(text, cases[c].hmac);
	}
}

/* FIPS 180-4's example, and that both ends say the same. */
static void test_sha256(void)
{
	struct sha256 a, b;
	uint8_t bytes[SHA256_BYTES];
	struct sha256_text text;

	kvt_sha256_start(&a);
	kvt_sha256_add(&a, "abc", 3);
	b = a;
	text = kvt_sha256_end(&a);
	kvt_sha256_end_bytes(bytes, &b);
	assert_string_equal(text.s, "ba7816bf8f01cfea414140de5dae2223"
				    "b00361a396177a9cb410ff61f20015ad");
	for (int i = 0; i < SHA256_BYTES; i++) {
		char digits[3];

		snprintf(digits, sizeof(digits), "%02x", bytes[i]);
		assert_memory_equal(digits, text.s + 2 * i, 2);
	}
}

TESTS("sha256",
	NAMED(test_hmac, "HMAC-SHA-256 by RFC 4231"),
	NAMED(test_sha256, "SHA-256 as text and as bytes"))
