//! Job control and the keys of a terminal, through an interactive bash.

use rexpect::session::{PtySession, spawn_command};

use crate::call::Place;
use crate::support::program;

struct Terminal {
    place: Place,
    session: PtySession,
}

impl Terminal {
    fn new() -> Self {
        let place = Place::new();
        let mut command = program("bash");
        command
            .args(["--norc", "--noprofile", "--noediting", "-i"])
            .env("PS1", "READY> ")
            .env("TERM", "dumb")
            .env("DISTLOCK_SERVER", place.server())
            .env("XDG_CONFIG_HOME", place.path(""))
            .env("D", "distlock run --name t --ttl 5s -k 300ms --")
            .current_dir(place.path(""));
        let mut session = spawn_command(command, Some(20_000)).unwrap();
        session.process_mut().set_kill_timeout(Some(100));
        session.exp_string("READY> ").unwrap();
        Self { place, session }
    }

    fn line(&mut self, text: &str) {
        self.session.send_line(text).unwrap();
    }

    #[track_caller]
    fn sees(&mut self, text: &str) {
        self.session.exp_string(text).unwrap();
    }

    #[track_caller]
    fn prompt(&mut self) {
        self.sees("READY> ");
    }

    fn key(&mut self, key: char) {
        self.session.send_control(key).unwrap();
    }

    #[track_caller]
    fn status(&mut self, status: i32) {
        self.line("echo rc=$?,");
        self.sees(&format!("rc={status},"));
        self.prompt();
    }

    #[track_caller]
    fn released(&self) {
        let call = self
            .place
            .call(&["run", "--name", "t", "--wait=5s", "--", "true"]);
        assert_eq!(call.code, 0, "{call:?}");
    }
}

#[test]
fn interrupt_ends_a_loop_of_the_shell() {
    let mut terminal = Terminal::new();
    terminal.line("for i in 1 2 3; do $D sh -c \"echo go$i; exec sleep 9\"; done");
    terminal.sees("go1");
    terminal.key('c');
    terminal.prompt();
    terminal.status(130);
    terminal.released();
}

#[test]
fn interrupt_ends_a_script() {
    let mut terminal = Terminal::new();
    terminal
        .place
        .write("s", "$D sh -c 'echo go; exec sleep 9'; echo AFTER\n");
    terminal.line("bash s > >(cat); echo done=$?");
    terminal.sees("go");
    terminal.key('c');
    terminal.prompt();
    terminal.status(130);
    terminal.released();
}

#[test]
fn a_command_is_stopped_and_resumed_as_often_as_wanted() {
    let mut terminal = Terminal::new();
    terminal.line("$D cat");
    for word in ["one", "two", "three"] {
        terminal.line(word);
        terminal.sees(word);
        terminal.key('z');
        terminal.sees("Stopped");
        terminal.prompt();
        terminal.line("fg");
    }
    terminal.line("last");
    terminal.sees("last");
    terminal.key('d');
    terminal.prompt();
    terminal.status(0);
    terminal.released();
}

#[test]
fn a_background_reader_is_stopped_until_it_gets_the_terminal() {
    let mut terminal = Terminal::new();
    terminal.line("$D cat & wait $!");
    terminal.prompt();
    terminal.line("jobs");
    terminal.sees("Stopped");
    terminal.prompt();
    terminal.line("fg");
    terminal.line("word");
    terminal.sees("word");
    terminal.key('d');
    terminal.prompt();
    terminal.status(0);
}

#[test]
fn a_command_that_stops_its_own_group_stops_the_job() {
    let mut terminal = Terminal::new();
    terminal.line("$D perl -e 'for (1..3) { kill TSTP => 0; print \"again$_\\n\" }'");
    for _ in 0..3 {
        terminal.sees("Stopped");
        terminal.prompt();
        terminal.line("fg");
    }
    terminal.sees("again3");
    terminal.prompt();
    terminal.released();
}

#[test]
fn a_command_that_ignores_the_stop_key_goes_on() {
    let mut terminal = Terminal::new();
    terminal.line("$D sh -c 'trap \"\" TSTP; echo go; read line; exit 5'");
    terminal.sees("go");
    terminal.key('z');
    terminal.line("end");
    terminal.prompt();
    terminal.status(5);
}

#[test]
fn a_stopped_pipeline_resumes() {
    let mut terminal = Terminal::new();
    terminal.line("cat | $D cat | cat; echo all=${PIPESTATUS[*]},");
    terminal.line("one");
    terminal.sees("one");
    terminal.key('z');
    terminal.sees("Stopped");
    terminal.prompt();
    terminal.line("fg");
    terminal.line("two");
    terminal.sees("two");
    terminal.key('d');
    terminal.prompt();
    terminal.status(0);
}

#[test]
fn a_command_in_its_own_group_reads_the_terminal() {
    let mut terminal = Terminal::new();
    terminal.line("$D perl -e 'setpgrp; $| = 1; while (<STDIN>) { print \"got $_\" }'");
    terminal.line("one");
    terminal.sees("got one");
    terminal.key('z');
    terminal.sees("Stopped");
    terminal.prompt();
    terminal.line("fg");
    terminal.line("two");
    terminal.sees("got two");
    terminal.key('c');
    terminal.prompt();
    terminal.status(130);
    terminal.released();
}

#[test]
fn the_keys_of_the_terminal_reach_the_command_once() {
    let mut terminal = Terminal::new();
    terminal.line(
        "$D perl -e '$| = 1; for my $s (qw(INT QUIT)) { $SIG{$s} = sub { $c{$s}++; print \"$s$c{$s},\" } } \
        print \"go\"; $_ = <STDIN> until $_; print \"all $c{INT} $c{QUIT},\"'",
    );
    terminal.sees("go");
    terminal.key('c');
    terminal.sees("INT1,");
    terminal.key('\\');
    terminal.sees("QUIT1,");
    terminal.line("end");
    terminal.sees("all 1 1,");
    terminal.prompt();
    terminal.status(0);
}

#[test]
fn a_stop_from_outside_is_mirrored() {
    let mut terminal = Terminal::new();
    terminal.line("$D sh -c 'echo go; kill -STOP $$; exit 4'");
    terminal.sees("go");
    terminal.sees("Stopped");
    terminal.prompt();
    terminal.line("fg");
    terminal.prompt();
    terminal.status(4);
    terminal.released();
}

#[test]
fn an_interactive_shell_below_us_can_be_suspended() {
    let mut terminal = Terminal::new();
    terminal.line("PS1='INNER> ' $D bash --norc --noprofile --noediting -i");
    terminal.sees("INNER> ");
    terminal.line("cat");
    terminal.line("word");
    terminal.sees("word");
    terminal.key('z');
    terminal.sees("Stopped");
    terminal.sees("INNER> ");
    terminal.line("fg");
    terminal.line("again");
    terminal.sees("again");
    terminal.key('c');
    terminal.sees("INNER> ");
    terminal.line("suspend");
    terminal.sees("Stopped");
    terminal.prompt();
    terminal.line("fg");
    terminal.line("echo in$((1 + 1))side");
    terminal.sees("in2side");
    terminal.line("exit 3");
    terminal.prompt();
    terminal.status(3);
    terminal.released();
}
