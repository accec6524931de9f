#!/bin/sh
# A step of a CI pipeline that only one pipeline may be in, as a deployment.
#
#     DISTLOCK_SERVER=redis://locks.example ci-step.sh NAME COMMAND [ARG...]
#
# Waits for its turn (PATIENCE, 15 minutes if not set) and says what its end means.
set -u

name=${1:?usage: ci-step.sh NAME COMMAND [ARG...]}
shift
distlock run --name "$name" --wait="${PATIENCE:-15m}" --max-runtime 30m \
    --reason "${CI_JOB_URL:-by hand}" -- "$@"
status=$?
case $status in
    0) ;;
    75) echo "ci-step.sh: another pipeline has had the lock all the time: not started" ;;
    64 | 69 | 77 | 78) echo "ci-step.sh: no lock to be had, see above: not started" ;;
    79) echo "ci-step.sh: the lock was lost and the step was stopped halfway: look at it" ;;
    124) echo "ci-step.sh: stopped after 30 minutes: look at it" ;;
    *) echo "ci-step.sh: the step itself failed with $status" ;;
esac >&2
exit "$status"
