# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_distlock_global_optspecs
    string join \n h/help V/version
end

function __fish_distlock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_distlock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_distlock_using_subcommand
    set -l cmd (__fish_distlock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c distlock -n "__fish_distlock_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c distlock -n "__fish_distlock_needs_command" -s V -l version -d 'Print version'
complete -c distlock -n "__fish_distlock_needs_command" -f -a "run" -d 'Run a command while holding a lock'
complete -c distlock -n "__fish_distlock_needs_command" -f -a "status" -d 'Show who holds locks'
complete -c distlock -n "__fish_distlock_needs_command" -f -a "list" -d 'List all locks'
complete -c distlock -n "__fish_distlock_needs_command" -f -a "release" -d 'Release a lock that somebody holds'
complete -c distlock -n "__fish_distlock_using_subcommand run" -l name -d 'Which lock to take' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l ttl -d 'How long the lock outlives its holder [default: 60s]' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -s w -d 'Wait up to D for the lock' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l wait -d 'Wait for the lock; without D, for ever' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -s E -l conflict-exit-code -d 'The exit code for "held by another" [default: 75]' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l hold-at-least -d 'Keep the lock taken for at least D' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l jitter -d 'Pause for a random time up to D first' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l reason -d 'Why, shown to whoever is refused' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l raw-key -d 'The exact key on the server' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -s c -d 'Run LINE with /bin/sh' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l max-runtime -d 'Stop the command when it has run for D; exit 124' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l signal -d 'The signal that stops the command [default: TERM]' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -s k -l kill-after -d 'KILL so long after that signal [default: 10s]' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l on-lost -d 'What to do when the lease is lost [default: stop]' -r -f -a "stop\t''
warn\t''"
complete -c distlock -n "__fish_distlock_using_subcommand run" -l lost-grace -d 'The grace when another may hold the lock already' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l leftovers -d 'What to do with what the command left running [default: wait]' -r -f -a "wait\t''
kill\t''
ignore\t''"
complete -c distlock -n "__fish_distlock_using_subcommand run" -l server -d 'Where the locks live, such as redis://HOST:6379' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l user -d 'The user on the server' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l password-file -d 'A file with the password' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand run" -l cacert -d 'TLS: trust these authorities instead of the system\'s' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand run" -l cert -d 'TLS: our own certificate' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand run" -l key -d 'TLS: the private key of --cert' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand run" -l connect-timeout -d 'The limit of one attempt to reach the server [default: 2s]' -r
complete -c distlock -n "__fish_distlock_using_subcommand run" -l config -d 'The configuration file' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand run" -l report -d 'Write one JSON object to FILE at the end' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand run" -l log-format -d 'The form of distlock\'s own lines [default: text]' -r -f -a "text\t''
json\t''"
complete -c distlock -n "__fish_distlock_using_subcommand run" -s n -l nonblock -d 'Give up at once if the lock is held, which is the default'
complete -c distlock -n "__fish_distlock_using_subcommand run" -l strict-release -d 'Exit with 74 if the release is not confirmed'
complete -c distlock -n "__fish_distlock_using_subcommand run" -l preserve-status -d 'Exit with the command\'s status instead of 79 or 124'
complete -c distlock -n "__fish_distlock_using_subcommand run" -l insecure -d 'TLS: do not verify the server\'s certificate'
complete -c distlock -n "__fish_distlock_using_subcommand run" -s q -l quiet -d 'Do not say "held by another" or who is waited for'
complete -c distlock -n "__fish_distlock_using_subcommand run" -s v -l verbose -d 'Say each step, and which configuration file was read'
complete -c distlock -n "__fish_distlock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c distlock -n "__fish_distlock_using_subcommand status" -l raw-key -d 'The exact key on the server, for one NAME' -r
complete -c distlock -n "__fish_distlock_using_subcommand status" -l server -d 'Where the locks live, such as redis://HOST:6379' -r
complete -c distlock -n "__fish_distlock_using_subcommand status" -l user -d 'The user on the server' -r
complete -c distlock -n "__fish_distlock_using_subcommand status" -l password-file -d 'A file with the password' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand status" -l cacert -d 'TLS: trust these authorities instead of the system\'s' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand status" -l cert -d 'TLS: our own certificate' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand status" -l key -d 'TLS: the private key of --cert' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand status" -l connect-timeout -d 'The limit of one attempt to reach the server [default: 2s]' -r
complete -c distlock -n "__fish_distlock_using_subcommand status" -l config -d 'The configuration file' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand status" -l json -d 'One JSON object a line for each NAME'
complete -c distlock -n "__fish_distlock_using_subcommand status" -s q -l quiet -d 'Print nothing: exit 0 if any is held, 1 if all are free'
complete -c distlock -n "__fish_distlock_using_subcommand status" -l insecure -d 'TLS: do not verify the server\'s certificate'
complete -c distlock -n "__fish_distlock_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c distlock -n "__fish_distlock_using_subcommand list" -l server -d 'Where the locks live, such as redis://HOST:6379' -r
complete -c distlock -n "__fish_distlock_using_subcommand list" -l user -d 'The user on the server' -r
complete -c distlock -n "__fish_distlock_using_subcommand list" -l password-file -d 'A file with the password' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand list" -l cacert -d 'TLS: trust these authorities instead of the system\'s' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand list" -l cert -d 'TLS: our own certificate' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand list" -l key -d 'TLS: the private key of --cert' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand list" -l connect-timeout -d 'The limit of one attempt to reach the server [default: 2s]' -r
complete -c distlock -n "__fish_distlock_using_subcommand list" -l config -d 'The configuration file' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand list" -l json -d 'One JSON object a line for each lock'
complete -c distlock -n "__fish_distlock_using_subcommand list" -l insecure -d 'TLS: do not verify the server\'s certificate'
complete -c distlock -n "__fish_distlock_using_subcommand list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c distlock -n "__fish_distlock_using_subcommand release" -l id -d 'Only if it is still held by ID, which `status` shows' -r
complete -c distlock -n "__fish_distlock_using_subcommand release" -l raw-key -d 'The exact key on the server' -r
complete -c distlock -n "__fish_distlock_using_subcommand release" -l server -d 'Where the locks live, such as redis://HOST:6379' -r
complete -c distlock -n "__fish_distlock_using_subcommand release" -l user -d 'The user on the server' -r
complete -c distlock -n "__fish_distlock_using_subcommand release" -l password-file -d 'A file with the password' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand release" -l cacert -d 'TLS: trust these authorities instead of the system\'s' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand release" -l cert -d 'TLS: our own certificate' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand release" -l key -d 'TLS: the private key of --cert' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand release" -l connect-timeout -d 'The limit of one attempt to reach the server [default: 2s]' -r
complete -c distlock -n "__fish_distlock_using_subcommand release" -l config -d 'The configuration file' -r -F
complete -c distlock -n "__fish_distlock_using_subcommand release" -l force -d 'Whoever holds it; asks first on a terminal'
complete -c distlock -n "__fish_distlock_using_subcommand release" -l yes -d 'Do not ask; needed where there is no terminal'
complete -c distlock -n "__fish_distlock_using_subcommand release" -l now -d 'Free it at once: a second command may start while the first still runs'
complete -c distlock -n "__fish_distlock_using_subcommand release" -l insecure -d 'TLS: do not verify the server\'s certificate'
complete -c distlock -n "__fish_distlock_using_subcommand release" -s h -l help -d 'Print help (see more with \'--help\')'
