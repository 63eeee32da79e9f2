# SPDX-License-Identifier: Apache-2.0
# The whole build of kvtool.  'make help' lists the targets; config.mk, which is
# not tracked, may override any variable.

-include config.mk

B       ?= build
CC      ?= cc
CXX     ?= c++
PREFIX  ?= /usr/local
CFLAGS  ?= -O2 -g
SAN     ?=
WERROR  ?=
V       ?=

STD     := -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -D_FILE_OFFSET_BITS=64
WARN    := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes \
	   -Wmissing-prototypes -Wwrite-strings -Wvla -Wundef \
	   $(if $(WERROR),-Werror)
SANFLAG := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
ALL     := $(STD) $(WARN) -I. $(CPPFLAGS) $(CFLAGS) $(SANFLAG)

pkg      = $(shell pkg-config $(1) $(2) 2>/dev/null)
FPKG    := hdf5-serial libzstd jansson libxxhash
FCFLAGS  = $(call pkg,--cflags,$(FPKG))
FLIBS    = $(call pkg,--libs,$(FPKG))
CMOCKA   = $(call pkg,--libs,cmocka)

Q       := $(if $(V),,@)
say      = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

objs     = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)))
LIB     := $(call objs,lib/*.c) $(call objs,kernels/cpu/*.c)
PLUGIN  := formats/zstd_frame.c formats/zstd_filter.c formats/plugin/zstd_plugin.c lib/error.c
FORMATS := $(call objs,formats/*.c)
CLI     := $(call objs,cli/*.c)

# tests/unit/test_*.c beside lib/ need no format; the rest links formats/ too
CORETEST   := $(patsubst %.c,$(B)/%,$(wildcard tests/unit/lib/test_*.c))
FORMATTEST := $(patsubst %.c,$(B)/%,$(wildcard tests/unit/formats/test_*.c))

all: $(B)/kvtool $(B)/libkvt.a $(B)/plugin/libh5kvtzstd.so	## build the program, the library and the HDF5 plugin

$(B)/kvtool: $(CLI) $(FORMATS) $(B)/libkvt.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $(LDFLAGS) -o $@ $(CLI) $(FORMATS) $(B)/libkvt.a $(FLIBS) -lpthread -lm

$(B)/libkvt.a: $(LIB)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/plugin/libh5kvtzstd.so: $(PLUGIN) $(B)/flags
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(STD) $(WARN) -I. $(CPPFLAGS) $(CFLAGS) $(FCFLAGS) \
		-fPIC -shared -fvisibility=hidden -o $@ $(PLUGIN) $(LDFLAGS) $(call pkg,--libs,libzstd) $(call pkg,--libs,hdf5-serial)

$(B)/formats/%.o $(B)/cli/%.o $(B)/tests/%.o: ALL += $(FCFLAGS)

$(B)/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(ALL) -MMD -MP -c -o $@ $<

$(CORETEST): $(B)/%: $(B)/%.o $(B)/libkvt.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $(LDFLAGS) -o $@ $^ $(CMOCKA) -lm

$(FORMATTEST): $(B)/%: $(B)/%.o $(FORMATS) $(B)/libkvt.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $(LDFLAGS) -o $@ $^ $(CMOCKA) $(FLIBS) -lpthread -lm

$(B)/check_kernels: $(addprefix $(B)/tests/,check_kernels.o kernel_case.o kernel_bench.o kernel_work.o) $(B)/libkvt.a
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $(LDFLAGS) -o $@ $^ -lpthread -lm

# A file that changes only when its content does: objects depend on it, so new
# flags rebuild what they must and nothing else.
FLAGS := $(CC) $(ALL) $(FCFLAGS) $(LDFLAGS)
$(B)/flags: FORCE
	@mkdir -p $(@D); echo '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(FLAGS))' >$@

check-core: $(B)/check_kernels $(CORETEST)	## test lib/ and kernels/ alone: needs no HDF5 and no zstd
	prove -e '' $^

clean:	## remove what was built
	rm -rf $(B)

help:	## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' Makefile

FORCE:
.PHONY: all check-core clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:

-include $(shell find $(B) -name '*.d' 2>/dev/null)
