use super::*;
use crate::config::typed::Raw;
use std::path::Path;

fn parse(text: &str) -> (File, Vec<String>) {
    let mut problems = Problems::new(Some(Path::new("f.toml")));
    let file = File::parse(text, &mut problems);
    let lines = problems.lines().collect();
    (file, lines)
}

#[test]
fn values_keep_their_paths_and_places() {
    let text = "threads = 2\n\n[memory]\n  size = \"1MiB\"\n\n[[site]]\nid = \"a\"\n\n[[site]]\n\
                hosts = [\"x\",\n  \"y\"]\n[site.origin]\nurls = []\n";
    let (file, problems) = parse(text);
    assert_eq!(problems, [""; 0]);
    assert!(file.whole);
    let threads = file.top.value("threads").unwrap();
    assert_eq!(threads.place, Place::File { line: 1, column: 11 });
    let size = file.memory.value("size").unwrap();
    assert_eq!(
        (size.path.as_str(), size.place),
        ("memory.size", Place::File { line: 4, column: 10 })
    );
    assert_eq!(file.sites.len(), 2);
    assert_eq!(file.sites[1].site.place, Place::File { line: 9, column: 1 });
    let Raw::List(hosts) = &file.sites[1].site.value("hosts").unwrap().raw else { panic!() };
    assert_eq!(hosts[1].path, "site[1].hosts[1]");
    assert_eq!(hosts[1].place, Place::File { line: 11, column: 3 });
    let origin = file.sites[1].origin.as_ref().unwrap();
    assert_eq!(origin.value("urls").unwrap().path, "site[1].origin.urls");
    assert!(file.sites[0].origin.is_none());
}

#[test]
fn a_misspelled_name_is_answered_with_the_nearest_one() {
    let (_, problems) = parse("[[site]]\nid = \"a\"\n    fetch_timout = \"3s\"\n");
    assert_eq!(
        problems,
        ["f.toml:3:5: site[0].fetch_timout: unknown field; did you mean \"fetch_timeout\"?"]
    );
    for (slip, meant) in [
        ("lisen", "listen"),
        ("sites", "site"),
        ("memroy", "memory"),
        ("acces_log", "access_log"),
        ("logs", "log"),
    ] {
        let (_, problems) = parse(&format!("{slip} = 1"));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(&format!("did you mean \"{meant}\"")), "{problems:?}");
    }
}

#[test]
fn a_name_without_a_near_match_lists_the_valid_names() {
    let (_, problems) = parse("[memory]\nelephants = 1");
    assert_eq!(
        problems,
        ["f.toml:2:1: memory.elephants: unknown field; the fields of [memory] are size, \
          object_max, in_flight_max"]
    );
    let (_, problems) = parse("fetch_timeout = \"1s\"");
    assert_eq!(problems, ["f.toml:1:1: fetch_timeout: unknown field here; it belongs to [[site]]"]);
}

#[test]
fn options_of_later_versions_have_their_own_message() {
    let (_, problems) = parse("[memcached]\nurl = \"x\"\n\n[[site]]\nlog = \"warn\"\n");
    assert_eq!(problems.len(), 2, "{problems:?}");
    let all = problems.join("\n");
    let memcached = "f.toml:1:2: memcached: `memcached` is not supported: this version has no \
                     memcached tier; remove it";
    assert!(all.contains(memcached), "{all}");
    assert!(all.contains("f.toml:5:1: site[0].log: `log` is not supported"));
    for (path, _) in LATER {
        let text = match path.rsplit_once('.') {
            None => format!("{path} = 1"),
            Some(("site", name)) => format!("[[site]]\n{name} = 1"),
            Some((table @ ("redis" | "tls"), name)) => format!("[{table}]\n{name} = 1"),
            Some((_, name)) => format!("[[site]]\n[site.origin]\n{name} = 1"),
        };
        let (_, problems) = parse(&text);
        assert!(problems[0].contains("is not supported: this version"), "{path}: {problems:?}");
    }
}

#[test]
fn a_table_of_the_wrong_shape_is_an_error() {
    let (file, problems) = parse("memory = 3\n[site]\nid = \"a\"\nidd = 1\n");
    assert_eq!(
        problems,
        [
            "f.toml:1:10: memory: must be a table; write [memory] above its fields",
            "f.toml:2:1: site: must be a list of tables; write [[site]] above each site's fields",
            "f.toml:4:1: site[0].idd: unknown field; did you mean \"id\"?",
        ]
    );
    assert_eq!(file.sites.len(), 1);
    let (file, problems) = parse("site = [1]");
    assert!(problems[0].contains("site[0]: must be a table"), "{problems:?}");
    assert!(file.sites.is_empty());
    let (_, problems) = parse("site = 1");
    assert!(problems[0].contains("f.toml:1:8: site: must be a list of tables"), "{problems:?}");
}

#[test]
fn syntax_errors_are_reported_together_with_other_errors() {
    let (file, problems) =
        parse("listen = \nthreads = 1\nadmin = \"x\nlgo = 1\n[memory\nsize = 1\n");
    assert!(!file.whole);
    assert!(problems.len() >= 3, "{problems:?}");
    let syntax: Vec<_> = problems.iter().filter(|line| line.contains("not TOML: ")).collect();
    assert!(syntax.iter().any(|line| line.starts_with("f.toml:1:")), "{problems:?}");
    assert!(syntax.iter().any(|line| line.starts_with("f.toml:3:")), "{problems:?}");
    assert!(syntax.iter().any(|line| line.starts_with("f.toml:5:")), "{problems:?}");
    assert!(problems.iter().any(|line| line.contains("lgo: unknown field; did you mean \"log\"?")));
    let (_, problems) = parse("a = 1\na = 2\n");
    assert!(problems.iter().any(|line| line.starts_with("f.toml:2:1: not TOML: duplicate key")));
}
