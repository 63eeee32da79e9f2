#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# man3.pl HEADER - a page of section 3 from the comments and declarations of a header, as
# scripts/public.pl prints it for users
#
# The first comment after the licence is NAME ("dump.h - ...") and DESCRIPTION; lines
# "/* ---- words --- */" begin sections; what follows is printed as the header has it,
# for a declaration and its comment belong together.
use strict;
use warnings;

my $path = shift // die "usage: man3.pl lib/kvt/NAME.h\n";
local $/;
my $text = qx(scripts/public.pl $path);
$? and exit 1;
my ($name) = $path =~ m{(\w+)\.h$} or die "$path: no header\n";
$text =~ s{\A/\* SPDX[^\n]*\n}{} or die "$path: begins without a licence\n";
$text =~ s{\A/\*\n(.*?)\*/\n}{}s or die "$path: begins without a comment\n";
my @about = map { s/^ \* ?//r } split /\n/, $1;
my ($what) = shift(@about) =~ /^\w+\.h - (.*)/ or die "$path: no line NAME.h - what\n";
while (@about && $about[0] =~ /\S/) { $what .= ' ' . shift @about; }

# a line of roff: no escapes, no control characters
sub roff { my $s = shift; $s =~ s/\\/\\e/g; $s =~ s/^([.'])/\\&$1/; $s =~ s/-/\\-/g; $s }
sub literal { join '', ".Bd -literal\n", (map { roff($_) . "\n" } @_), ".Ed\n" }

$text =~ s/^#ifndef KVT_\w+\n#define KVT_\w+\n//m;
$text =~ s/^#ifdef __cplusplus\n(?:extern "C" \{|\})\n#endif\n//mg;
$text =~ s/\n#endif\s*\z/\n/;
my @includes = $text =~ m{^#include (["<].*)$}mg;
$text =~ s{^#include .*\n}{}mg;
$text =~ s{\bKVT_(?:API|MUST_CHECK)\s+}{}g;

my $title = $name eq 'kvt' ? 'KVT_H' : 'KVT_' . uc $name;
my $call = $name eq 'kvt' ? 'kvt_h' : "kvt_$name";
print ".\\\" SPDX-License-Identifier: Apache-2.0\n.\\\" Written by scripts/man3.pl.\n";
print ".Dd \$Mdocdate\$\n.Dt $title 3\n.Os\n.Sh NAME\n.Nm $call\n.Nd ", roff($what), "\n";
print ".Sh SYNOPSIS\n.In kvt/$name.h\n.Sh DESCRIPTION\n";
my (@part, $written);
for (@about, '') {
	if (/\S/) { push @part, $_; next; }
	next unless @part;
	if (grep /^\s/, @part) {
		print literal(@part);
	} else {
		# a sentence begins a line
		my $words = join ' ', @part;
		$words =~ s/([.:?]\)?)  ?(?=[A-Z'"(])/$1\n/g;
		print ".Pp\n" if $written;
		print map { roff($_) . "\n" } split /\n/, $words;
	}
	$written = 1;
	@part = ();
}
my @lines = split /\n/, $text;
my @block;
my $flush = sub {
	shift @block while @block && $block[0] !~ /\S/;
	pop @block while @block && $block[-1] !~ /\S/;
	print literal(@block) if @block;
	@block = ();
};
for (@lines) {
	if (m{^/\* -{3,} (.*?) -{3,} \*/$}) {
		$flush->();
		print ".Ss \u$1\n";
	} else {
		push @block, $_;
	}
}
$flush->();
print ".Sh SEE ALSO\n.Xr kvtool 1 ,\n.Xr kvt 3\n";
