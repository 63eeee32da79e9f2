#!/usr/bin/perl
# SPDX-License-Identifier: Apache-2.0
# harness.pl [-j N] TEST...: what 'prove -e ""' does, then what tests that failed
# said, the reason of every test that was skipped, and one line with exact counts for
# .ci/run to add up.
use strict;
use warnings;
use Getopt::Long;
use TAP::Harness;

# What runs in the background of a shell ignores these, and so would every test
# that sends one.
$SIG{$_} = 'DEFAULT' for qw(INT QUIT PIPE);

my $jobs = 1;
GetOptions('j=i' => \$jobs) and @ARGV
	or die "usage: tests/harness.pl [-j N] TEST...\n";

-x or die "$_: not there or not executable\n" for @ARGV;

my (@skips, @said);
my $harness = TAP::Harness->new({
	exec => [], jobs => $jobs, failures => 1, timer => 1,
});
$harness->callback(made_parser => sub {
	my ($parser, $job) = @_;
	my $lines = 0;			# of this failure that may still be kept

	$parser->callback(test => sub {
		my ($test) = @_;
		$lines = $test->is_ok ? 0 : 30;
		push @said, "failed: $job->[0]: " . $test->as_string if $lines;
		push @skips, $job->[0] . ': ' . $test->as_string
			if $test->has_skip;
	});
	$parser->callback(comment => sub {
		push @said, '  ' . $_[0]->as_string if $lines-- > 0;
	});
});
my $result = $harness->runtests(@ARGV);

my $skipped = @skips;
# A program that died or lost its plan counts as one failure even if each of the
# tests it did report passed.
my $failed = $result->failed;
for my $name ($result->descriptions) {
	my ($parser) = $result->parsers($name);
	$failed++ if $parser->has_problems && !$parser->failed;
	push @skips, "$name: all of it: " . $parser->skip_all if $parser->skip_all;
}
my $passed = $result->passed - $skipped;
$skipped = @skips;
print "$_\n" for @said;
print "skipped: $_\n" for sort @skips;
print "$passed passed, $failed failed", $skipped ? ", $skipped skipped" : '', "\n";
exit($failed || !$result->all_passed ? 1 : 0);
