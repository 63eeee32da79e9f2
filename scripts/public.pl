#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# public.pl HEADER - a header of lib/kvt/ as users of libkvt see it
# public.pl --list - the headers that are installed
#
# lib/kvt/ says what the rooms of this tree offer each other; KVT_API marks what is promised
# to everybody.  What is installed leaves out the other functions, with the comments that
# speak of them alone, and the headers that promise none.
use strict;
use warnings;

sub text_of {
	my ($path) = @_;
	open my $in, '<', $path or die "$path: $!\n";
	local $/;
	return scalar <$in>;
}

# Parts of a header in its order: [kind, text]; kinds are blank, comment (of what follows),
# function, promised and other.
sub parts {
	my ($path) = @_;
	local $_ = text_of($path);
	my $braces = qr~(\{(?:[^{}]++|(?-1))*\})~;
	my $end = qr~[ \t]*(?:/\*[^\n]*\*/[ \t]*)?\n~;
	my @part;
	while (length) {
		if (s~\A[ \t]*\n~~) {
			push @part, ['blank', "\n"];
		} elsif (s~\A/\*.*?\*/\n~~s) {
			push @part, ['comment', $&];
		} elsif (s~\A#(?:[^\n]*\\\n)*[^\n]*\n~~ || s~\A(?:extern "C" \{|\})\n~~) {
			push @part, ['other', $&];
		} elsif (s~\Astatic inline[^{]*$braces$end~~) {
			push @part, ['other', $&];
		} elsif (s~\A(?:/\*.*?\*/|[^;{/]|/|$braces)*?;$end~~s) {
			my $said = $&;
			my $kind = $said =~ /^extern |^(?!typedef)[^{]*\bkvt_\w+\s*\(/ ? 'function' : 'other';
			$kind = 'promised' if $said =~ /\bKVT_API\b/;
			push @part, [$kind, $said];
		} else {
			/\A([^\n]*)/;
			die "$path: not understood: $1\n";
		}
	}
	return @part;
}

# A section, from one title to the next, that promises nothing though it has functions is
# left out whole.  A comment stays if something after it, before the next one or a blank
# line, does; one alone between blank lines is of its section.
sub public {
	my ($path, $installed) = @_;
	my (@section, @kept);
	for (parts($path)) {
		push @section, [] if !@section || "@$_" =~ m~^comment /\* -{3,}~;
		push @{$section[-1]}, $_;
	}
	for my $section (@section) {
		my %has = map { $_->[0] => 1 } @$section;
		next if $has{function} && !$has{promised} && $section != $section[0];
		for my $i (0 .. $#$section) {
			my ($kind, $said) = @{$section->[$i]};
			next if $kind eq 'function' ||
				$said =~ m~^#include "(lib/kvt/\w+\.h)"~ && !$installed->{$1};
			if ($kind eq 'comment') {
				my @of;
				for my $next (@$section[$i + 1 .. $#$section]) {
					last if $next->[0] =~ /^(?:comment|blank)$/;
					push @of, $next->[0];
				}
				next if @of && !grep { $_ ne 'function' } @of;
			}
			push @kept, $said;
		}
	}
	my $text = join '', @kept;
	my $extern = "#ifdef __cplusplus\n}\n#endif\n";
	$text .= "\n$extern" if $text =~ /^extern "C" \{/m && $text !~ /^\}\n#endif/m;
	$text .= "\n#endif\n" if $text !~ /#endif\s*\z/ || $text =~ /\Q$extern\E\z/;
	$text =~ s/\n{3,}/\n\n/g;
	return $text;
}

my $what = shift // die "usage: public.pl --list | HEADER\n";
my @installed = grep { text_of($_) =~ /^KVT_API\b/m } glob 'lib/kvt/*.h';
print $what eq '--list' ? map { "$_\n" } @installed : public($what, { map { $_ => 1 } @installed });
