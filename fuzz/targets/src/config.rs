//! `config`: the text of a configuration file.
//!
//! Must hold: parsing returns; what is refused is refused with places in the text, in its order.

use std::path::Path;

use sandtide_config::Surroundings;

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let surroundings = Surroundings { engines: &["riscv"], variable: &|name| Some(name.into()) };
    let parsed = sandtide_config::parse("fuzz.toml", &text, Path::new("/srv"), &surroundings);
    let problems = match parsed {
        Ok(config) => {
            assert!(!config.tenants.is_empty(), "a configuration without tenants was accepted");
            return;
        }
        Err(problems) => problems,
    };
    assert!(!problems.0.is_empty(), "refused without a reason");
    let lines: Vec<&str> = text.split('\n').collect();
    let mut last = (0, 0);
    for problem in &problems.0 {
        let place = (problem.line, problem.column);
        assert!(!problem.message.trim().is_empty(), "a problem without a message at {place:?}");
        assert!(place >= last, "{place:?} stands behind {last:?}");
        assert!(
            (1..=lines.len()).contains(&problem.line)
                && (1..=lines[problem.line - 1].chars().count() + 1).contains(&problem.column),
            "{place:?} is not in the text"
        );
        last = place;
    }
    assert!(!problems.to_string().is_empty());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [
        "",
        "[tenants.hello]\nprogram = \"hello.elf\"\ndefault = true\n",
        "[tenants.a]\nprogram = 1\nauthorities = [\"x\", \"*.y\"]\n[tenants.a]\n",
        "[server]\nlisten = \"127.0.0.1:8080\"\nthreads = -1\nnope = {}\n",
        "include = [\"*.toml\", \"x\"]\n[server]\nthreads = \"${T:-2}\"\n[[server.listen]]\ntls = true\n",
        "[groups.a]\ngroup = \"b\"\nenv = { A = \"$${A}\" }\n[groups.b]\ngroup = \"a\"\n[tls]\n",
        "[defaults.limits]\nmemory = \"64 MiB\"\nwall_time = \"10 s\"\ninstructions = 1e9\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
