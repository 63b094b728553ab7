//! The picture: a panel for the load, one for each run, and how to read them.

use anyhow::ensure;
use backpressure::State;
use plotters::{
    coord::Shift,
    prelude::{DrawingArea, IntoDrawingArea as _, PathElement, RGBColor, Rectangle, SVGBackend, Text},
    style::{
        Color as _, FontStyle, IntoFont as _, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};

use crate::{
    load::{CAPACITY, Run},
    panel::{self, grouped},
};

/// Pixels.
const SIZE: (u32, u32) = (900, 644);
const COLUMNS: usize = 3;
const ROWS: usize = 3;

/// The page, or a part of it.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The colours for one kind of page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    pub(crate) name: &'static str,
    pub(crate) page: RGBColor,
    pub(crate) ink: RGBColor,
    pub(crate) muted: RGBColor,
    pub(crate) depth: RGBColor,
    pub(crate) lost: RGBColor,
    /// The states are shades of one colour, so that they differ without seeing it.
    pub(crate) state: RGBColor,
    /// How strong it is in Elevated, Critical and Blocked.
    pub(crate) shades: [f64; 3],
}

impl Palette {
    /// For a white page.
    pub(crate) const LIGHT: Self = Self {
        name: "light",
        page: RGBColor(255, 255, 255),
        ink: RGBColor(31, 35, 40),
        muted: RGBColor(89, 99, 110),
        depth: RGBColor(9, 105, 218),
        lost: RGBColor(164, 14, 38),
        state: RGBColor(188, 76, 0),
        shades: [0.09, 0.20, 0.36],
    };

    /// For a dark one.
    pub(crate) const DARK: Self = Self {
        name: "dark",
        page: RGBColor(13, 17, 23),
        ink: RGBColor(230, 237, 243),
        muted: RGBColor(157, 167, 179),
        depth: RGBColor(88, 166, 255),
        lost: RGBColor(255, 161, 152),
        state: RGBColor(240, 136, 62),
        shades: [0.13, 0.28, 0.48],
    };

    /// How strong the shade of a state is; the states without one are the usual ones.
    pub(crate) fn shade(&self, state: State) -> Option<f64> {
        match state {
            State::Elevated => Some(self.shades[0]),
            State::Critical => Some(self.shades[1]),
            State::Blocked => Some(self.shades[2]),
            _ => None,
        }
    }
}

/// Draws the load and all runs, as the text of an SVG file.
pub(crate) fn draw(runs: &[Run], palette: &Palette) -> anyhow::Result<String> {
    ensure!(runs.len() + 2 <= COLUMNS * ROWS, "there is no room for {} runs", runs.len());
    let mut svg = String::new();
    {
        let page = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        page.fill(&palette.page)?;
        let cells = page.margin(4, 4, 4, 4).split_evenly((ROWS, COLUMNS));
        panel::draw_load(&cells[0], palette)?;
        for (cell, run) in cells[1..].iter().zip(runs) {
            panel::draw_run(cell, run, palette)?;
        }
        draw_legend(&cells[COLUMNS * ROWS - 1], palette)?;
        page.present()?;
    }
    Ok(svg)
}

/// Writes at a point of the area, in pixels.
pub(crate) fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: f64,
    color: RGBColor,
    h: HPos,
) -> anyhow::Result<()> {
    area.draw(&Text::new(text.to_owned(), at, font(size, FontStyle::Normal, color, h)))?;
    Ok(())
}

/// A font that every system has; its size in pixels, vertically centred.
pub(crate) fn font(size: f64, style: FontStyle, color: RGBColor, h: HPos) -> TextStyle<'static> {
    // The backend writes down a size that is smaller by this factor.
    const BACKEND: f64 = 1.24;
    ("sans-serif", size * BACKEND).into_font().style(style).color(&color).pos(Pos::new(h, VPos::Center))
}

fn draw_legend(area: &Area<'_>, palette: &Palette) -> anyhow::Result<()> {
    let title = font(14.0, FontStyle::Bold, palette.ink, HPos::Left);
    area.draw(&Text::new("How to read it", (44, 12), title))?;
    let line = |y: i32, text: &str| write(area, text, (92, y), 11.0, palette.ink, HPos::Left);
    let mut y = 36;
    area.draw(&Rectangle::new([(44, y - 1), (82, y + 7)], palette.depth.mix(0.18).filled()))?;
    area.draw(&PathElement::new([(44, y - 1), (82, y - 1)], palette.depth.stroke_width(2)))?;
    line(y, "depth: buffered, or with the sink")?;
    y += 18;
    area.draw(&Rectangle::new([(44, y - 7), (82, y - 2)], palette.lost.filled()))?;
    line(y, "lost, of what came at that moment")?;
    let states = [State::Elevated, State::Critical, State::Blocked];
    for (state, text) in states.into_iter().zip(["E: Elevated", "C: Critical", "Blocked: no room"]) {
        y += 18;
        let shade = palette.state.mix(palette.shade(state).unwrap_or_default());
        area.draw(&Rectangle::new([(44, y - 7), (82, y + 7)], shade.filled()))?;
        line(y, text)?;
    }
    y += 24;
    for text in [
        format!("full: {} outstanding items; high and low:", grouped(CAPACITY as u64)),
        "the marks at 0.8 and 0.5 of it".to_owned(),
        "wait: until push or send answers".to_owned(),
        "oldest: the age of an item when written".to_owned(),
        "for: what the weights of a sample add up to".to_owned(),
    ] {
        write(area, &text, (44, y), 11.0, palette.muted, HPos::Left)?;
        y += 16;
    }
    Ok(())
}
