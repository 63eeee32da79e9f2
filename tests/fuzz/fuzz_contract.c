/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_contract.c - any bytes as a layout contract: refused with a sentence that
 * names a line, or clauses whose values can be written down again
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/expect/contract.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const ops[] = {
	[CLAUSE_IS] = "=", [CLAUSE_IS_NOT] = "!=", [CLAUSE_AT_LEAST] = ">=",
	[CLAUSE_AT_MOST] = "<=",
};

/* One clause as text; read again it is the same. */
static void check_clause(const struct clause *clause)
{
	struct clause again;
	size_t room = strlen(clause->name) + 16, used;
	char *text;

	for (int i = 0; i < clause->nvalues; i++)
		room += 2 * strlen(clause->value[i]) + 8;
	if (!(text = malloc(room)))
		return;
	used = (size_t)sprintf(text, "%s %s", clause->name, ops[clause->op]);
	for (int i = 0; i < clause->nvalues; i++) {
		used += (size_t)sprintf(text + used, i ? " | " : " ");
		clause_quote(text + used, room - used, clause->value[i]);
		used += strlen(text + used);
	}
	if (clause_parse(&again, text, NULL) || again.key != clause->key ||
	    again.op != clause->op || again.nvalues != clause->nvalues ||
	    clause_check(&again, NULL))
		abort();
	for (int i = 0; i < clause->nvalues; i++)
		if (strcmp(again.value[i], clause->value[i]))
			abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvt_error err = { "" };
	struct contract contract;

	if (contract_parse(&contract, (const char *)data, size, "c", &err)) {
		if (strncmp(err.text, "c:", 2))
			abort();
	} else {
		for (int i = 0; i < contract.nclauses; i++)
			check_clause(&contract.clause[i]);
	}
	contract_free(&contract);
	return 0;
}
