//! Pictures as sixels: for bands of six rows, the pixels of each colour, six in one character.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::png::Pixels;

/// The most colours, as most terminals have.
const MOST_COLORS: usize = 256;
/// Rows of a band.
const BAND: usize = 6;
/// The bits of each channel by which colours are told apart before they are reduced.
const BITS: u32 = 5;
/// A pixel with less opacity isn't painted.
const OPAQUE: u8 = 128;

/// Pixels of nearly one colour.
#[derive(Debug, Clone, Copy)]
struct Shade {
    /// Which one: the first bits of the channels.
    index: usize,
    count: u64,
    sums: [u64; 3],
}

/// Returns the control sequence that shows a picture.
pub(super) fn encode(picture: &Pixels) -> String {
    let Pixels { width, all } = picture;
    let height = all.len() / width;
    let (colors, color_of) = palette(all);
    // Pixels that aren't painted stay as they are (`1`). The raster attributes say the size.
    let mut text = format!("\x1bP0;1;0q\"1;1;{width};{height}");
    for (number, color) in colors.iter().enumerate() {
        let [red, green, blue] = color.map(|level| (u32::from(level) * 100 + 127) / 255);
        // Writing to a string never fails.
        let _ = write!(text, "#{number};2;{red};{green};{blue}");
    }
    for band in all.chunks(BAND * width) {
        let mut columns: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
        for (place, pixel) in band.iter().enumerate().filter(|(_, pixel)| pixel[3] >= OPAQUE) {
            let (row, column) = (place / width, place % width);
            let bits = columns.entry(color_of[index(pixel)]).or_insert_with(|| vec![0; *width]);
            bits[column] |= 1 << row;
        }
        for (color, bits) in columns {
            let _ = write!(text, "#{color}");
            runs(&bits, &mut text);
            text.push('$');
        }
        text.push('-');
    }
    text + "\x1b\\"
}

/// Writes six rows of one colour; equal columns are counted.
fn runs(bits: &[u8], text: &mut String) {
    for run in bits.chunk_by(|a, b| a == b) {
        let character = char::from(b'?' + run[0]);
        match run.len() {
            count @ ..=3 => text.extend(std::iter::repeat_n(character, count)),
            count => {
                let _ = write!(text, "!{count}{character}");
            }
        }
    }
}

fn index(pixel: &[u8; 4]) -> usize {
    let bits = |level: u8| usize::from(level >> (8 - BITS));
    bits(pixel[0]) << (2 * BITS) | bits(pixel[1]) << BITS | bits(pixel[2])
}

/// Returns the colours, and which of them each shade has.
fn palette(all: &[[u8; 4]]) -> (Vec<[u8; 3]>, Vec<u16>) {
    let none = Shade { index: 0, count: 0, sums: [0; 3] };
    let mut shades = vec![none; 1 << (3 * BITS)];
    for pixel in all.iter().filter(|pixel| pixel[3] >= OPAQUE) {
        let shade = &mut shades[index(pixel)];
        shade.count += 1;
        for (sum, level) in shade.sums.iter_mut().zip(pixel) {
            *sum += u64::from(*level);
        }
    }
    let mut color_of = vec![0; shades.len()];
    for (index, shade) in shades.iter_mut().enumerate() {
        shade.index = index;
    }
    shades.retain(|shade| shade.count > 0);
    let boxes = median_cut(shades);
    let colors = boxes.iter().enumerate().map(|(number, shades)| {
        for shade in shades {
            color_of[shade.index] = u16::try_from(number).unwrap_or(0);
        }
        let count: u64 = shades.iter().map(|shade| shade.count).sum();
        [0, 1, 2].map(|channel| {
            let sum: u64 = shades.iter().map(|shade| shade.sums[channel]).sum();
            u8::try_from(sum / count.max(1)).unwrap_or(u8::MAX)
        })
    });
    (colors.collect(), color_of)
}

/// Divides shades into at most [`MOST_COLORS`] groups: again and again the group with the widest
/// channel, by its pixels, at the middle one.
fn median_cut(shades: Vec<Shade>) -> Vec<Vec<Shade>> {
    let mut boxes = vec![shades];
    boxes.retain(|shades| !shades.is_empty());
    while boxes.len() < MOST_COLORS {
        let widest = boxes.iter().enumerate().filter(|(_, shades)| shades.len() > 1);
        let widest = widest.max_by_key(|(_, shades)| {
            let pixels: u64 = shades.iter().map(|shade| shade.count).sum();
            // A difference that few pixels have is worth a colour, too: lines of a plot.
            u64::from(range(shades).1) * (1 + u64::from(pixels.ilog2()))
        });
        let Some((place, _)) = widest else { break };
        let mut shades = boxes.swap_remove(place);
        let (channel, _) = range(&shades);
        shades.sort_unstable_by_key(|shade| level(shade, channel));
        let half = shades.iter().map(|shade| shade.count).sum::<u64>() / 2;
        let mut before = 0;
        let middle = shades.iter().position(|shade| {
            before += shade.count;
            before > half
        });
        // Both parts have at least one.
        let middle = middle.unwrap_or(0).clamp(1, shades.len() - 1);
        let upper = shades.split_off(middle);
        boxes.extend([shades, upper]);
    }
    boxes
}

/// Returns the channel in which shades differ most, and by how much.
fn range(shades: &[Shade]) -> (u32, u8) {
    let ranges = (0..3).map(|channel| {
        let levels = shades.iter().map(|shade| level(shade, channel));
        let (least, most) = (levels.clone().min().unwrap_or(0), levels.max().unwrap_or(0));
        (channel, most - least)
    });
    ranges.max_by_key(|(_, range)| *range).unwrap_or((0, 0))
}

/// Returns a shade's level in a channel: 0 is red.
fn level(shade: &Shade, channel: u32) -> u8 {
    let bits = shade.index >> ((2 - channel) * BITS) & ((1 << BITS) - 1);
    u8::try_from(bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads sixels again: the colour of each pixel in percent, by row and column.
    fn decode(text: &str) -> BTreeMap<(usize, usize), [u32; 3]> {
        let body = text.strip_prefix("\x1bP0;1;0q").unwrap().strip_suffix("\x1b\\").unwrap();
        let mut colors = BTreeMap::new();
        let mut painted = BTreeMap::new();
        let (mut band, mut column, mut color, mut rest) = (0, 0, 0, body);
        let numbers = |rest: &mut &str| -> Vec<u32> {
            let end = rest.find(|it: char| !it.is_ascii_digit() && it != ';').unwrap_or(rest.len());
            let (digits, after) = rest.split_at(end);
            *rest = after;
            digits.split(';').map(|number| number.parse().unwrap()).collect()
        };
        while let Some(character) = rest.chars().next() {
            rest = &rest[1..];
            let mut count = 1;
            let mut sixel = character;
            match character {
                '"' => assert_eq!(numbers(&mut rest).len(), 4),
                '$' => column = 0,
                '-' => (band, column) = (band + 1, 0),
                '#' => match numbers(&mut rest)[..] {
                    [number] => color = number,
                    [number, 2, red, green, blue] => {
                        colors.insert(number, [red, green, blue]);
                    }
                    ref other => panic!("{other:?}"),
                },
                _ => {
                    if character == '!' {
                        count = numbers(&mut rest)[0];
                        sixel = rest.chars().next().unwrap();
                        rest = &rest[1..];
                    }
                    let bits = u8::try_from(sixel).unwrap() - b'?';
                    for _ in 0..count {
                        for row in (0..BAND).filter(|row| bits >> row & 1 == 1) {
                            painted.insert((band * BAND + row, column), colors[&color]);
                        }
                        column += 1;
                    }
                }
            }
        }
        painted
    }

    #[test]
    fn what_is_painted_is_the_picture() {
        let (red, blue, clear) = ([255, 0, 0, 255], [0, 0, 255, 255], [9, 9, 9, 0]);
        let mut all = vec![red; 9 * 8];
        (all[3], all[9 * 7 + 8], all[9]) = (blue, blue, clear);
        let painted = decode(&encode(&Pixels { width: 9, all }));
        assert_eq!(painted.len(), 9 * 8 - 1);
        assert!(!painted.contains_key(&(1, 0)));
        for (place, color) in painted {
            let is_blue = [(0, 3), (7, 8)].contains(&place);
            assert_eq!(color, if is_blue { [0, 0, 100] } else { [100, 0, 0] }, "{place:?}");
        }
    }

    #[test]
    fn many_colors_become_few_that_are_near() {
        let all: Vec<[u8; 4]> = (0..=255_u8)
            .flat_map(|red| (0..=255_u8).map(move |green| [red, green, red ^ green, 255]))
            .collect();
        let text = encode(&Pixels { width: 256, all: all.clone() });
        assert_eq!(text.matches(";2;").count(), MOST_COLORS);
        let painted = decode(&text);
        let far = all.iter().enumerate().map(|(place, pixel)| {
            let shown = painted[&(place / 256, place % 256)];
            let distance = |(level, shown): (&u8, u32)| {
                (i64::from(*level) * 100 / 255 - i64::from(shown)).abs()
            };
            pixel.iter().zip(shown).map(distance).max().unwrap()
        });
        let (sum, count) = far.fold((0, 0), |(sum, count), far| (sum + far, count + 1));
        assert!(sum / count < 12, "{}", sum / count);
    }

    #[test]
    fn nothing_is_painted_where_all_is_clear() {
        assert!(decode(&encode(&Pixels { width: 2, all: vec![[1, 2, 3, 0]; 14] })).is_empty());
    }
}
