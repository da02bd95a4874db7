// LaTeX's names of mathematical symbols, and what MathML shows for each.

const pairsOf = (text) => new Map(text.trim().split(/\s+/).map((each) => each.split("=")));

const LETTERS = pairsOf(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ
  pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ
  Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω infty=∞ partial=∂ nabla=∇ hbar=ℏ ell=ℓ Re=ℜ Im=ℑ aleph=ℵ emptyset=∅
  varnothing=∅ imath=ı jmath=ȷ top=⊤ bot=⊥ angle=∠ triangle=△ square=□ blacksquare=■ degree=° dagger=† prime=′ checkmark=✓`);

const OPERATORS = pairsOf(`
  times=× cdot=⋅ div=÷ pm=± mp=∓ ast=∗ star=⋆ circ=∘ bullet=∙ oplus=⊕ ominus=⊖ otimes=⊗ odot=⊙ cap=∩ cup=∪ setminus=∖ wedge=∧
  land=∧ vee=∨ lor=∨ neg=¬ lnot=¬ le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ equiv=≡ approx=≈ sim=∼ simeq=≃ cong=≅
  propto=∝ ll=≪ gg=≫ prec=≺ succ=≻ in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ mid=∣ parallel=∥ perp=⊥ vdash=⊢
  models=⊨ forall=∀ exists=∃ nexists=∄ therefore=∴ because=∵ to=→ rightarrow=→ leftarrow=← gets=← leftrightarrow=↔ Rightarrow=⇒
  implies=⟹ Leftarrow=⇐ Leftrightarrow=⇔ iff=⟺ mapsto=↦ longrightarrow=⟶ longleftarrow=⟵ Longrightarrow=⟹ uparrow=↑ downarrow=↓
  hookrightarrow=↪ rightharpoonup=⇀ rightleftharpoons=⇌ ldots=… dots=… cdots=⋯ vdots=⋮ ddots=⋱ colon=: triangleq=≜ doteq=≐ asymp=≍
  lt=< gt=> backslash=\\ vert=| Vert=‖ lvert=| rvert=| lVert=‖ rVert=‖ langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉
  lbrace={ rbrace=} {={ }=} |=‖ %=% $=$ #=# &=& _=_`);

// Those whose limits stand above and below them where a formula has lines of its own.
const LARGE = pairsOf(`sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigotimes=⨂ bigvee=⋁ bigwedge=⋀`);
const INTEGRALS = pairsOf("int=∫ iint=∬ iiint=∭ oint=∮");
const LIMITS = new Set("lim max min sup inf limsup liminf argmax argmin det gcd Pr".split(" "));
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp dim ker deg arg hom".split(" "));

const ACCENTS = pairsOf("hat=^ widehat=^ bar=¯ overline=¯ vec=→ overrightarrow=→ dot=˙ ddot=¨ tilde=~ widetilde=~ check=ˇ overbrace=⏞");
const BELOW = pairsOf("underline=_ underbrace=⏟");
const SPACES = pairsOf(",=0.17em :=0.22em ;=0.28em !=0em quad=1em qquad=2em enspace=0.5em");
SPACES.set(" ", "0.25em");
const FENCES = pairsOf("matrix= pmatrix=() bmatrix=[] Bmatrix={} vmatrix=|| Vmatrix=‖‖ cases={ array= aligned= align= align*= gather= gather*= gathered= split= equation= equation*= smallmatrix=");

// Alphabets of letters of their own: where each begins, and the letters that stood elsewhere already.
const ALPHABETS = {
  mathbb: [0x1d538, 0x1d552, { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" }],
  mathcal: [0x1d49c, 0x1d4b6, { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" }],
  mathfrak: [0x1d504, 0x1d51e, { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" }],
  mathbf: [0x1d400, 0x1d41a, {}],
  mathsf: [0x1d5a0, 0x1d5ba, {}],
  mathtt: [0x1d670, 0x1d68a, {}],
};
ALPHABETS.mathscr = ALPHABETS.mathcal;
ALPHABETS.boldsymbol = ALPHABETS.bm = ALPHABETS.mathbf;
