//! Cuts Rust source into tokens: just enough of the language to tell code from comments and strings.

/// A word, a number, `::` or one other character, with the line it stands on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

/// Cuts a text into tokens; comments and lifetimes vanish, a string or a character becomes `""`.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, token) = next_token(rest, first);
        if let Some(text) = token {
            found.push(Token { text, line });
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// How long the next token is, and what it is, if anything.
fn next_token(rest: &str, first: char) -> (usize, Option<&str>) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (comment(rest), None);
    }
    if let Some(length) = string(rest) {
        return (length, Some("\"\""));
    }
    if let Some(quoted) = rest.strip_prefix('\'') {
        let mut within = quoted.char_indices().skip(1);
        let end = if quoted.starts_with('\\') {
            within.skip(1).find(|(_, c)| *c == '\'')
        } else {
            within.next().filter(|(_, c)| *c == '\'')
        };
        return end.map_or((1 + word(quoted), None), |(at, _)| (1 + at + 1, Some("\"\"")));
    }
    if let Some(raw) = rest.strip_prefix("r#") {
        return (2 + word(raw), Some(&raw[..word(raw)]));
    }
    if rest.starts_with("::") {
        return (2, Some(&rest[..2]));
    }
    let length = word(rest).max(first.len_utf8());
    (length, (!first.is_whitespace()).then(|| &rest[..length]))
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// The length of a block comment, those within it included.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the string literal that stands here, prefix and hashes included, `None` if none does.
fn string(rest: &str) -> Option<usize> {
    let prefix = word(rest);
    if !matches!(&rest[..prefix], "" | "r" | "b" | "br" | "c" | "cr") {
        return None;
    }
    let raw = rest[..prefix].contains('r');
    let hashes = if raw { rest[prefix..].bytes().take_while(|byte| *byte == b'#').count() } else { 0 };
    let open = prefix + hashes;
    let body = rest[open..].strip_prefix('"')?;
    if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(open + 1 + body.find(&end).map_or(body.len(), |at| at + end.len()));
    }
    let mut escaped = false;
    let end = body.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    });
    Some(open + 1 + end.map_or(body.len(), |at| at + 1))
}

/// The bracket that closes the one at `open`, or the last token.
pub(crate) fn closing(code: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in code.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth <= 1 => return i,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

pub(crate) fn before<'a>(code: &[Token<'a>], i: usize) -> &'a str {
    i.checked_sub(1).and_then(|i| code.get(i)).map_or("", |token| token.text)
}

pub(crate) fn after<'a>(code: &[Token<'a>], i: usize) -> &'a str {
    code.get(i + 1).map_or("", |token| token.text)
}
