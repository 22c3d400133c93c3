//! Command lines that cannot be read.

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use control::api::{Kind, Problem};
use serde_json::json;

use super::common::{document, stdout};

/// Prints what is wrong, as JSON too if that was asked for, or the help or version that was asked for.
pub(crate) fn end(error: &clap::Error) -> ExitCode {
    // As with all output: if its reader is gone, there is nothing to do about it.
    let _ = error.print();
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    let asked = |word: &std::ffi::OsString| word == "--json";
    let before_drives = std::env::args_os().skip(1).take_while(|word| word != "--");
    if code == 2 && before_drives.collect::<Vec<_>>().iter().any(asked) {
        let fields = json!({ "error": problem(error) });
        let _ = writeln!(stdout(), "{}", document("error", fields));
    }
    code.into()
}

/// The same for programs.
fn problem(error: &clap::Error) -> Problem {
    let text = error.to_string();
    let why = text.lines().next().unwrap_or_default();
    let suggestions = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let nearest = suggestions.into_iter().find_map(|kind| error.get(kind));
    let hint = match nearest {
        Some(ContextValue::String(name)) => format!("there is `{name}`"),
        Some(ContextValue::Strings(names)) if !names.is_empty() => {
            format!("there is `{}`", names.join("`, `"))
        }
        _ => "see --help".to_owned(),
    };
    Problem {
        what: "the command cannot be read".to_owned(),
        why: why.strip_prefix("error: ").unwrap_or(why).to_owned(),
        hint,
        kind: Kind::Usage,
        span: None,
    }
}
