//! Tasks that are slow for a reason that the test knows: the label that the server gives them is right in nine of ten. The simulator
//! has 180 (`crates/sim`); these are real.

use blackbox::{
    Answers, Cluster, Event, Finished, NODE_MEMORY, ObjectServer, Questions, Racks, Random, Running, Sandbox,
    SlowProxy, Verdict, rows_of,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

const TASKS: usize = 20;
/// Enough for a map task each.
const FILE_BYTES: usize = 1 << 20;
const LINE_BYTES: usize = 64;
const FILES: usize = 14;

/// Program that hands on its input in pieces, and rests after each. TROUBLE stands for the code that makes it slow.
const PROGRAM: &str = "#!/bin/sh
rest=0.1
task=HERE/slow/$SAILFISH_JOB-$SAILFISH_TASK
node=${PWD%/sailfish-*}
hand_on() { cat piece; }
TROUBLE
while head -c 65536 > piece && [ -s piece ]; do hand_on; sleep $rest; done
";
/// Makes one task on each node slow, once each node has had some tasks. The records are the cause: the task is slow on any node.
const SLOW_RECORDS: &str =
    "if [ $SAILFISH_TASK -ge 6 ] && mkdir $node/heavy 2> /dev/null; then touch $task; rest=0.9; fi";
/// Makes the first tasks of one node slow.
const SLOW_NODE: &str =
    "case $PWD in */node-disk-2/*) [ $SAILFISH_TASK -lt 6 ] && touch $task; rest=0.9 ;; esac";
/// Three attempts stop in the middle.
const STUCK: &str = "for name in one two three; do
  if [ $SAILFISH_ATTEMPT = 0 ] && mkdir HERE/$name 2> /dev/null; then
    touch $task
    head -c 500000 > half; cat half; sleep 3600
  fi
done";

/// A slow task: its trouble, the expected label, and the label that it got.
struct Slow {
    trouble: &'static str,
    expected: &'static str,
    said: String,
}

/// Whoever hands jobs in.
struct Client<'a> {
    sandbox: &'a Sandbox,
    command: &'a dyn Fn(&[&str]) -> Command,
}

impl Answers for Client<'_> {
    fn rows(&self, statement: &str) -> Vec<serde_json::Value> {
        rows_of(Running::start(&mut (self.command)(&["state", "--json", statement])).wait())
    }
}

impl Client<'_> {
    fn of(cluster: &Cluster, test: impl FnOnce(Client<'_>) -> Vec<Slow>) -> Vec<Slow> {
        test(Client { sandbox: &cluster.sandbox, command: &|args| cluster.sailfish(args) })
    }

    fn done(&self, args: &[&str]) -> Finished {
        Running::start(&mut (self.command)(args)).wait().expect_success()
    }

    fn run(&self, args: &[&str]) {
        self.done(
            &[&["run", "--memory", "64M", "--slots", "2", "--overwrite", "--output", "out"], args].concat(),
        );
    }

    fn program(&self, trouble: &str) -> String {
        std::fs::create_dir_all(self.sandbox.path("slow")).expect("our own directory takes another");
        self.sandbox.program("program.sh", &PROGRAM.replace("TROUBLE", trouble))
    }

    /// The tasks that were slow in a job, as their programs say.
    fn slow_tasks(&self, job: i64) -> Vec<i64> {
        let names = std::fs::read_dir(self.sandbox.path("slow")).expect("it was made").flatten();
        let task = |name: String| name.strip_prefix(&format!("{job}-"))?.parse().ok();
        names.filter_map(|entry| task(entry.file_name().to_string_lossy().into_owned())).collect()
    }

    /// The last job.
    fn job(&self) -> i64 {
        self.last_job()
    }

    /// Returns the first labels of tasks of the last job. An attempt that has stopped counts as slow until it has been still
    /// for long enough: its last label is the one by which it got a speculative attempt.
    fn told(&self, trouble: &'static str, expected: &'static str, stage: &str, tasks: &[i64]) -> Vec<Slow> {
        let job = self.job();
        let said = self.events(Event::Speculation).of_job(job).details();
        let label = |task: &i64| {
            let of_task = format!("{stage}/{task}: ");
            let mut of_this = said.iter().filter_map(|line| line.strip_prefix(&of_task));
            let line = if expected == "no-progress" { of_this.next_back() } else { of_this.next() };
            println!(
                "{trouble}: {}",
                line.map_or_else(|| format!("{of_task}nothing"), |line| format!("{of_task}{line}"))
            );
            line.and_then(|line| line.split(": ").next()).unwrap_or("nothing").to_string()
        };
        tasks.iter().map(|task| Slow { trouble, expected, said: label(task) }).collect()
    }
}

/// So many bytes in lines of one length.
fn lines_of(bytes: usize, mut line: impl FnMut(usize) -> String) -> String {
    let mut text = String::with_capacity(bytes);
    for number in 0..bytes / LINE_BYTES {
        writeln!(text, "{}", line(number)).expect("a string takes all");
    }
    text
}

fn lines(bytes: usize, mut key: impl FnMut(usize) -> String) -> String {
    lines_of(bytes, |line| {
        let key = key(line);
        format!("{key}\t{line:0width$}", width = LINE_BYTES - 2 - key.len())
    })
}

fn hex_of(random: &mut Random) -> String {
    let digits: String = (0..3).map(|_| format!("{:016x}", random.next_bits())).collect();
    digits[..LINE_BYTES - 18].to_string()
}

fn write_files(sandbox: &Sandbox) {
    let text = lines(FILE_BYTES, |line| format!("{:08}", line * 7919 % 100_003));
    (0..FILES).for_each(|file| drop(sandbox.write(&format!("in/{file:02}.txt"), &text)));
}

/// Three keys have much more than others.
fn much_data(client: Client<'_>) -> Vec<Slow> {
    let key =
        |line: usize| if line % 8 < 6 { format!("much-{}", line % 3) } else { format!("key-{}", line % 331) };
    client.sandbox.write("in/skewed.txt", lines(6 * FILE_BYTES, key));
    let program = client.program("");
    client.run(&["--input", "in", "--reducer", &program, "--partitions", "16"]);
    let parts = client.sandbox.part_names(&client.sandbox.out());
    let text = |name: &String| std::fs::read_to_string(client.sandbox.out().join(name)).expect("a part");
    let has_much = |(_, name): &(usize, &String)| text(name).contains("much-");
    let tasks: Vec<i64> = parts.iter().enumerate().filter(has_much).map(|(task, _)| task as i64).collect();
    client.told("much data", "large-data", "reduce", &tasks)
}

fn of_program(client: &Client<'_>, text: &str, trouble: &'static str, expected: &'static str) -> Vec<Slow> {
    write_files(client.sandbox);
    let program = client.program(text);
    client.run(&["--input", "in", "--mapper", &program, "--map-only"]);
    client.told(trouble, expected, "map", &client.slow_tasks(client.job()))
}

/// As many attempts as it has slots begin on the slow node; twice.
fn slow_node(client: Client<'_>) -> Vec<Slow> {
    (0..2).flat_map(|_| of_program(&client, SLOW_NODE, "a slow node", "slow-node")).collect()
}

/// A store that is slow with two objects, and the way to it that is slow for one node.
fn slow_store() -> Vec<Slow> {
    let server = ObjectServer::start("lake");
    let mut cluster = Cluster::builder().nodes(2).environment(server.environment()).start();
    let proxy = SlowProxy::start(server.address());
    cluster.add_changed_node(|node| {
        node.env("AWS_ENDPOINT_URL", format!("http://{}", proxy.address()));
    });
    let text = lines(FILE_BYTES, |line| format!("{:08}", line * 7919 % 100_003));
    (0..FILES).for_each(|file| server.write(&format!("lake/in/{file:02}.txt"), &text));
    Client::of(&cluster, |client| {
        let program =
            client.program("case $PWD in */node-disk-2/*) [ $SAILFISH_TASK -lt 6 ] && touch $task ;; esac");
        let args = ["--input", "s3://lake/in", "--mapper", &program, "--map-only"];
        proxy.delay(Duration::from_millis(600));
        client.run(&args);
        let mut told =
            client.told("a slow way to the store", "slow-read", "map", &client.slow_tasks(client.job()));
        proxy.delay(Duration::ZERO);
        let is_slow = |path: &str| path.contains("/02.txt") || path.contains("/07.txt");
        server.watch(move |method, path| match method == "GET" && is_slow(path) {
            true => Verdict::Late(Duration::from_secs(8)),
            false => Verdict::Pass,
        });
        client.run(&args);
        told.extend(client.told("a slow store", "slow-read", "map", &[2, 7]));
        told
    })
}

/// Sends the output of the maps of one machine over a slow link. None if there can be no such machine.
fn slow_link() -> Option<Vec<Slow>> {
    let racks = Racks::start("a slow link as the cause of slow tasks", 3)?;
    let sandbox = Sandbox::new();
    let url = format!("https://{}:7070", Racks::HUB);
    let mut serve = sandbox.sailfish();
    serve.args(["server", "--listen", &format!("{}:7070", Racks::HUB), "--require-tokens", "--tls"]);
    // Its programs leave marks for one another.
    serve.arg("--no-sandbox");
    serve.arg("--state").arg(sandbox.path("server-state")).arg("--allow-root").arg(sandbox.path(""));
    let server = Running::start(&mut racks.hub(&sandbox, &serve));
    server.wait_for_stderr("serving at");
    let token = sandbox.path("server-state/admin.token");
    let command = |args: &[&str]| {
        let mut command = sandbox.sailfish();
        command.args(args).args(["--server", &url, "--token-file"]).arg(&token);
        racks.hub(&sandbox, &command)
    };
    let client = Client { sandbox: &sandbox, command: &command };
    client.done(&["token", "create", "--user", "machines", "--role", "node", "--output", "node.token"]);
    let mut nodes = Vec::new();
    for machine in 0..3 {
        let (address, name) = (format!("{}:0", Racks::address(machine)), format!("node-disk-{machine}"));
        let mut command = sandbox.sailfish();
        command.args(["node", "--server", &url, "--token-file", "node.token", "--listen", &address]);
        command.args(["--slots", "2", "--memory", NODE_MEMORY, "--name", &name]);
        command.arg("--disk").arg(sandbox.path(&name));
        nodes.push(Running::start(&mut racks.machine(machine, &sandbox, &command)));
        nodes[machine as usize].wait_for_stderr("joined");
    }
    racks.cap(2, "4mbit");
    // What is not compressed, and more than may be under way, so that the program is held up.
    let mut random = Random::new(1);
    let text = lines_of(FILE_BYTES, |_| format!("{:016x}\t{}", random.next_bits(), hex_of(&mut random)));
    (0..FILES).for_each(|file| drop(sandbox.write(&format!("in/{file:02}.txt"), &text)));
    // The only I-file lies on the first node.
    let text = "hand_on() { for to in 0-9a-f f0-9a-e ef0-9a-d def0-9a-c; do tr 0-9a-f $to < piece; done; }
        case $PWD in */node-disk-2/*) [ $SAILFISH_TASK -lt 6 ] && touch $task ;; esac";
    let program = client.program(text);
    client.run(&["--input", "in", "--mapper", &program, "--total-order"]);
    Some(client.told("a slow link", "slow-append", "map", &client.slow_tasks(client.job())))
}

#[test]
fn nine_of_ten_labels_are_right() {
    let worlds: [fn() -> Option<Vec<Slow>>; 5] = [
        || Some(Client::of(&Cluster::builder().nodes(3).start(), much_data)),
        || Some(Client::of(&Cluster::builder().nodes(3).start(), slow_node)),
        || {
            let records =
                |client: Client<'_>| of_program(&client, SLOW_RECORDS, "slow records", "slow-program");
            Some(Client::of(&Cluster::builder().nodes(4).start(), records))
        },
        || {
            let mut told = Client::of(&Cluster::builder().nodes(3).start(), |client| {
                of_program(&client, STUCK, "stuck", "no-progress")
            });
            told.extend(slow_store());
            Some(told)
        },
        slow_link,
    ];
    let told: Vec<Option<Vec<Slow>>> = std::thread::scope(|scope| {
        let worlds: Vec<_> = worlds.into_iter().map(|world| scope.spawn(world)).collect();
        worlds.into_iter().map(|world| world.join().expect("what a thread says is told already")).collect()
    });
    let all_could_run = told.iter().all(Option::is_some);
    let told: Vec<Slow> = told.into_iter().flatten().flatten().collect();
    let mut table: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for slow in &told {
        *table.entry((slow.trouble, slow.expected, &slow.said)).or_default() += 1;
    }
    let mut shown = String::new();
    for ((trouble, expected, said), count) in &table {
        writeln!(shown, "{trouble:<24} {expected:<13} said: {said:<13} {count}").expect("a string takes all");
    }
    println!("{shown}");
    let right = told.iter().filter(|slow| slow.expected == slow.said).count();
    assert!(!all_could_run || told.len() == TASKS, "{} slow tasks:\n{shown}", told.len());
    assert!(right * 10 >= told.len() * 9, "{right} of {}:\n{shown}", told.len());
}
