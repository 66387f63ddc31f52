# frozen_string_literal: true

# Sidekiq's own Web UI: as an application that `config.ru` serves, and with a visitor who needs no web server, keeps
# cookies and presses buttons.

require "rack"
begin
  require "rack/session" # a gem of its own since Rack 3
rescue LoadError
  require "rack/session/cookie"
end
require "sidekiq/web"

class WebUi
  SECRET = "a secret of the tests, long enough for Rack to take" * 2

  # Sidekiq 6.0 makes a session with a secret of its own unless told not to; later ones want one from outside.
  def self.app
    Sidekiq::Web.set(:sessions, false) if Sidekiq::VERSION.start_with?("6.0.")
    Rack::Builder.new do
      use Rack::Session::Cookie, secret: SECRET, same_site: true
      run Sidekiq::Web
    end.to_app
  end

  def initialize
    @browser = Rack::MockRequest.new(WebUi.app)
    @cookie = ""
  end

  # The page's HTML; a status other than 200 is an error.
  def visit(path)
    answer = remember(@browser.get(path, "HTTP_COOKIE" => @cookie))
    raise "GET #{path}: #{answer.status}\n#{answer.body}" unless answer.status == 200

    answer.body
  end

  # Submit *form* from the page at *path*, as its button would; the status, 302 when all went well.
  #
  # Sidekiq up to 8.0 asks for the token in the page's forms, 8.1 for the header that browsers send along.
  def press(path, form, to: path)
    page = visit(path)
    raise "no form on #{path}" unless page.match?(/<form[^>]+post/i)

    token = page[/name=['"]authenticity_token['"] value=['"]([^'"]+)['"]/, 1]
    params = token ? form.merge("authenticity_token" => token) : form
    headers = {"HTTP_COOKIE" => @cookie, "HTTP_SEC_FETCH_SITE" => "same-origin"}
    remember(@browser.post(to, headers.merge(:params => params))).status
  end

  private

  def remember(answer)
    set = Array(answer["Set-Cookie"]).first
    @cookie = set.split(";").first if set
    answer
  end
end
