/* SPDX-License-Identifier: Apache-2.0 */
/* set.h - several dumps of one command line, as a shell's * names them */
#ifndef KVTOOL_SET_H
#define KVTOOL_SET_H

#include "lib/kvt/dump.h"

/*
 * Leaves out of 'operands' the manifests of others among them, which are read with
 * these; how many are left.
 */
int pass_over_manifests(char **operands, int n, const struct kvt_hints *hints);

#endif
