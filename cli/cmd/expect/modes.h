/* SPDX-License-Identifier: Apache-2.0 */
/* modes.h - the modes of kvtool expect that say what vLLM would choose */
#ifndef KVTOOL_EXPECT_MODES_H
#define KVTOOL_EXPECT_MODES_H

#include "cli/cli.h"

extern const struct command expect_backend, expect_layout, expect_connector;

#endif
