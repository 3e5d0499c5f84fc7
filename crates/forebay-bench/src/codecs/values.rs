//! Values as the published text describes them: records with associations and random strings.

use anyhow::Result;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// An article of a web application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Article {
    id: u64,
    title: String,
    body: String,
    published_at: String,
    author: Author,
    comments: Vec<Comment>,
    tags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Author {
    id: u64,
    name: String,
    email: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Comment {
    id: u64,
    author: Author,
    text: String,
    likes: u32,
}

/// Articles that have about this many bytes as JSON; the same for the same size.
pub(super) fn articles(bytes: usize) -> Result<Vec<Article>> {
    let mut random = Rng::with_seed(1);
    let (mut all, mut length) = (Vec::new(), 0);
    while length < bytes {
        let comments = ((bytes - length) / 250).min(5);
        let article = article(&mut random, comments);
        length += serde_json::to_vec(&article)?.len();
        all.push(article);
    }
    Ok(all)
}

fn article(random: &mut Rng, comments: usize) -> Article {
    Article {
        id: random.u64(..1 << 40),
        title: text(random, 40),
        body: text(random, 200),
        published_at: format!("2024-0{}-1{}T12:00:00Z", random.u8(1..10), random.u8(0..10)),
        author: author(random),
        comments: (0..comments).map(|_| comment(random)).collect(),
        tags: (0..3).map(|_| text(random, 8)).collect(),
    }
}

fn comment(random: &mut Rng) -> Comment {
    Comment {
        id: random.u64(..1 << 40),
        author: author(random),
        text: text(random, 80),
        likes: random.u32(..1_000),
    }
}

fn author(random: &mut Rng) -> Author {
    let name = text(random, 12);
    Author { id: random.u64(..1 << 20), email: format!("{name}@example.org"), name }
}

/// Random letters and digits.
fn text(random: &mut Rng, length: usize) -> String {
    (0..length).map(|_| random.alphanumeric()).collect()
}
