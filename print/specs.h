/* SPDX-License-Identifier: Apache-2.0 */
/* specs.h - what --spec may say */
#ifndef KVTOOL_PRINT_SPECS_H
#define KVTOOL_PRINT_SPECS_H

/* "kvtool help specs": kinds with an example each, then the keys. */
void specs_print(void);

#endif
