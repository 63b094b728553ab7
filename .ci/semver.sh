#!/usr/bin/env bash
# What has changed in the public API since a release fits the version: semver.sh [REVISION]
#
# The last tag, unless told. Not among the checks of .ci/run, since there is nothing to compare with before the first release.
. "$(dirname "$0")/lib.sh"

need cargo-semver-checks
revision=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
[ -n "$revision" ] || fail "there is no tag to compare with: semver.sh REVISION"

cargo-semver-checks semver-checks -p backpressure --all-features --baseline-rev "$revision"

did="nothing breaks between $revision and $(git describe --tags --always --dirty) that the version does not say"
